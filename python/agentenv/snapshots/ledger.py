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
