"""What this node must remember by itself: who reads which files here, and since when nothing needs one. Blocking."""

import sqlite3
from collections.abc import Collection

from agentenv.snapshots import schema


class Ledger:
    """Leases of this node, and times by topic."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def lease(self, holder: str, digests: Collection[str]) -> None:
        """Remember that `holder` needs files."""
        with schema.transaction(self._connection) as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO lease VALUES (?, ?)", [(holder, digest) for digest in digests]
            )

    def release(self, holders: Collection[str]) -> None:
        """Forget what holders need."""
        with schema.transaction(self._connection) as connection:
            connection.executemany("DELETE FROM lease WHERE holder = ?", [(holder,) for holder in holders])

    def holders(self) -> list[str]:
        """Return who holds leases."""
        return [holder for (holder,) in self._connection.execute("SELECT DISTINCT holder FROM lease")]

    def leased(self) -> list[str]:
        """Return all files that are leased on this node."""
        return [digest for (digest,) in self._connection.execute("SELECT DISTINCT digest FROM lease ORDER BY digest")]

    def mark(self, topic: str, keys: Collection[str], now: float) -> dict[str, float]:
        """Remember since when each key is of a topic, forget all others, and return the times."""
        with schema.transaction(self._connection) as connection:
            known = dict(connection.execute("SELECT key, at FROM since WHERE topic = ?", (topic,)))
            gone = known.keys() - set(keys)
            connection.executemany("DELETE FROM since WHERE topic = ? AND key = ?", [(topic, key) for key in gone])
            new = {key: now for key in keys if key not in known}
            connection.executemany("INSERT INTO since VALUES (?, ?, ?)", [(topic, key, now) for key in new])
        return {key: known[key] for key in keys if key in known} | new

    def marked(self, topic: str) -> dict[str, float]:
        """Return the times of a topic."""
        return dict(self._connection.execute("SELECT key, at FROM since WHERE topic = ?", (topic,)))

    def note(self, topic: str, key: str, now: float) -> None:
        """Remember a key of a topic, and since when, unless it is known."""
        with schema.transaction(self._connection) as connection:
            connection.execute("INSERT OR IGNORE INTO since VALUES (?, ?, ?)", (topic, key, now))

    def unmark(self, topic: str, key: str) -> None:
        """Forget a key of a topic."""
        with schema.transaction(self._connection) as connection:
            connection.execute("DELETE FROM since WHERE topic = ? AND key = ?", (topic, key))

    def note_merged(self, key: str, digest: str, size_bytes: int, weight: int) -> None:
        """Remember what neighbours, named by `key`, were merged to, and for how many layers that stands."""
        with schema.transaction(self._connection) as connection:
            connection.execute("INSERT OR REPLACE INTO merged VALUES (?, ?, ?, ?)", (key, digest, size_bytes, weight))

    def find_merged(self, key: str) -> tuple[str, int] | None:
        """Return digest and size of what neighbours were merged to."""
        row = self._connection.execute("SELECT digest, size_bytes FROM merged WHERE key = ?", (key,)).fetchone()
        return None if row is None else (row[0], row[1])

    def forget_merged(self, digests: Collection[str]) -> None:
        """Forget merged layers that are gone."""
        with schema.transaction(self._connection) as connection:
            connection.executemany("DELETE FROM merged WHERE digest = ?", [(digest,) for digest in digests])

    def weights(self, digests: Collection[str]) -> dict[str, int]:
        """Return for how many layers each layer stands; one that was not merged here stands for itself."""
        marks = ", ".join("?" * len(digests))
        rows = self._connection.execute(f"SELECT digest, weight FROM merged WHERE digest IN ({marks})", tuple(digests))  # noqa: S608 - marks
        return dict.fromkeys(digests, 1) | dict(rows)
