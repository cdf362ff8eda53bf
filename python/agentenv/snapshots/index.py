"""What this node remembers of the repository, so that lists and searches read no manifest. Blocking.

All of it can be lost: it is read from the store again.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from agentenv.base.ids import SandboxId, SnapshotId, TemplateId
from agentenv.objects.base import Version
from agentenv.snapshots import names, schema
from agentenv.snapshots.base import (
    Cursor,
    Page,
    SnapshotKind,
    SnapshotManifest,
    SnapshotQuery,
    SnapshotSummary,
)
from agentenv.snapshots.findings import Finding, NameFinding

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROW = (
    "id, kind, created_at, parent_id, sandbox_id, template_id, vcpus, memory_mib, disk_size_bytes, own_bytes, "
    "has_memory, envd_version, json((SELECT json_group_array(key) FROM name WHERE snapshot_id = snapshot.id))"
)


class Index:
    """Snapshots, names and the files they need."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def versions(self) -> dict[str, Version]:
        """Return the version of every manifest's cell that is known."""
        return dict(self._connection.execute("SELECT id, version FROM snapshot"))

    def name_versions(self) -> dict[str, Version]:
        """Return the version of every name's cell that is known."""
        return dict(self._connection.execute("SELECT key, version FROM name"))

    def put(self, findings: Iterable[Finding], now: float, *, seen: dict[str, Version] | None = None) -> None:
        """Remember findings; those whose entry is no longer the one in `seen` are older than what is known."""
        with schema.transaction(self._connection) as connection:
            for finding in findings:
                if seen is None or self._version(finding.snapshot_id) == seen.get(finding.snapshot_id):
                    self._put(connection, finding, now)

    def _version(self, snapshot_id: SnapshotId) -> Version | None:
        row = self._connection.execute("SELECT version FROM snapshot WHERE id = ?", (snapshot_id,)).fetchone()
        return None if row is None else Version(row[0])

    def _put(self, connection: sqlite3.Connection, finding: Finding, now: float) -> None:
        self._remove(connection, finding.snapshot_id)
        head = (finding.snapshot_id, finding.version, finding.state, now)
        connection.execute(
            "INSERT INTO snapshot VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            head + _to_values(finding.manifest),
        )
        stored = {record.digest for record in finding.manifest.records()} if finding.manifest else finding.digests
        connection.executemany(
            "INSERT INTO file VALUES (?, ?, ?)",
            [(digest, finding.snapshot_id, digest in stored) for digest in finding.digests],
        )

    def remove(self, known: dict[str, Version]) -> None:
        """Forget manifests whose cells are gone, unless their entries have changed since."""
        with schema.transaction(self._connection) as connection:
            for snapshot_id, version in known.items():
                if self._version(SnapshotId(snapshot_id)) == version:
                    self._remove(connection, SnapshotId(snapshot_id))

    def _remove(self, connection: sqlite3.Connection, snapshot_id: SnapshotId) -> None:
        connection.execute("DELETE FROM snapshot WHERE id = ?", (snapshot_id,))
        connection.execute("DELETE FROM file WHERE snapshot_id = ?", (snapshot_id,))

    def put_names(self, findings: Iterable[NameFinding]) -> None:
        """Remember who has names."""
        with schema.transaction(self._connection) as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO name VALUES (?, ?, ?)",
                [(finding.key, finding.version, finding.snapshot_id) for finding in findings],
            )

    def remove_names(self, keys: Iterable[str]) -> None:
        """Forget names whose cells are gone."""
        with schema.transaction(self._connection) as connection:
            connection.executemany("DELETE FROM name WHERE key = ?", [(key,) for key in keys])

    def names_of(self, snapshot_id: SnapshotId) -> list[str]:
        """Return the names that a snapshot has."""
        rows = self._connection.execute("SELECT key FROM name WHERE snapshot_id = ?", (snapshot_id,))
        return [name for (key,) in rows if (name := names.from_key(key)) is not None]

    def dangling_names(self) -> list[str]:
        """Return names of snapshots that are not there."""
        rows = self._connection.execute(
            "SELECT key FROM name WHERE snapshot_id IS NOT NULL AND snapshot_id NOT IN "
            "(SELECT id FROM snapshot WHERE state <> 'deleted')"
        )
        return [name for (key,) in rows if (name := names.from_key(key)) is not None]

    def tombstones(self, before: float) -> list[str]:
        """Return the ids of snapshots known as deleted since before a time."""
        rows = self._connection.execute("SELECT id FROM snapshot WHERE state = 'deleted' AND since < ?", (before,))
        return [snapshot_id for (snapshot_id,) in rows]

    def find(self, snapshot_id: SnapshotId) -> SnapshotSummary | None:
        """Return a snapshot that is whole, or None."""
        return next(iter(self._summaries("id = ? AND state = 'whole'", (snapshot_id,))), None)

    def page(self, query: SnapshotQuery, after: Cursor | None, limit: int) -> Page:
        """Return one page, the newest first."""
        terms, values = _to_terms(query)
        if after is not None:
            terms.append("(created_at, id) < (?, ?)")
            values += [_to_microseconds(after.created_at), after.snapshot_id]
        order = f"{' AND '.join(terms)} ORDER BY created_at DESC, id DESC LIMIT ?"
        found = sorted(self._summaries(order, (*values, limit + 1)), key=_by_time, reverse=True)
        if len(found) <= limit:
            return Page(tuple(found), None)
        last = found[limit - 1]
        return Page(tuple(found[:limit]), Cursor(last.created_at, last.snapshot_id))

    def children(self, snapshot_id: SnapshotId) -> list[SnapshotSummary]:
        """Return the children of a snapshot, the oldest first."""
        return sorted(self._summaries("parent_id = ? AND state = 'whole'", (snapshot_id,)), key=_by_time)

    def lineage(self, snapshot_id: SnapshotId) -> list[SnapshotSummary]:
        """Return a snapshot and its ancestors, nearest first."""
        found: dict[SnapshotId, SnapshotSummary] = {}
        current: SnapshotId | None = snapshot_id
        # A hostile manifest may name a descendant as its parent.
        while current is not None and current not in found and (summary := self.find(current)) is not None:
            found[current] = summary
            current = summary.parent_id
        return list(found.values())

    def tree(self, snapshot_id: SnapshotId, limit: int) -> list[SnapshotSummary]:
        """Return the tree that a snapshot is in, parents first; the children of a deleted root belong together."""
        root = self.lineage(snapshot_id)[-1]
        level = [root] if root.parent_id is None else self.children(root.parent_id)
        found: dict[SnapshotId, SnapshotSummary] = {}
        while level and len(found) < limit:
            found |= {summary.snapshot_id: summary for summary in level}
            level = [
                child
                for parent in level
                for child in self.children(parent.snapshot_id)
                if child.snapshot_id not in found
            ]
        return list(found.values())[:limit]

    def unused_since(self, before: datetime, limit: int) -> list[SnapshotId]:
        """Return snapshots made before a time that have neither name nor child, the oldest first."""
        rows = self._connection.execute(
            "SELECT id FROM snapshot WHERE kind = 'snapshot' AND state = 'whole' AND created_at < ? "
            "AND NOT EXISTS (SELECT 1 FROM name WHERE snapshot_id = snapshot.id) "
            "AND NOT EXISTS (SELECT 1 FROM snapshot AS child WHERE child.parent_id = snapshot.id AND state = 'whole') "
            "ORDER BY created_at LIMIT ?",
            (_to_microseconds(before), limit),
        )
        return [SnapshotId(snapshot_id) for (snapshot_id,) in rows]

    def needed(self, digests: Collection[str]) -> set[str]:
        """Return which of these files a snapshot needs."""
        marks = ", ".join("?" * len(digests))
        rows = self._connection.execute(f"SELECT DISTINCT digest FROM file WHERE digest IN ({marks})", tuple(digests))  # noqa: S608 - marks
        return {digest for (digest,) in rows}

    def outside(self) -> frozenset[str]:
        """Return the files that snapshots need and that are not kept in the repository."""
        return frozenset(
            digest for (digest,) in self._connection.execute("SELECT DISTINCT digest FROM file WHERE is_stored = 0")
        )

    def _summaries(self, condition: str, values: tuple[object, ...]) -> list[SnapshotSummary]:
        # One row, because sqlite3 lets go of the interpreter for every row, and gets it back only when a busy thread
        # of ours has had its five milliseconds: a page of a hundred rows would wait for a hundred turns.
        query = f"SELECT json_array({_ROW}) AS line FROM snapshot WHERE {condition}"  # noqa: S608 - ours
        (text,) = self._connection.execute(f"SELECT json_group_array(json(line)) FROM ({query})", values).fetchone()  # noqa: S608 - ours
        return [_to_summary(row) for row in json.loads(text)]


def _to_terms(query: SnapshotQuery) -> tuple[list[str], list[object]]:
    terms: list[str] = ["state = 'whole'"]
    values: list[object] = []
    for column, value in (("kind", query.kind), ("sandbox_id", query.sandbox_id), ("template_id", query.template_id)):
        if value is not None:
            terms.append(f"{column} = ?")
            values.append(value)
    if query.name is not None:
        name = names.canonical(query.name)
        # Without a tag, whichever has the name with any tag.
        is_tagged = ":" in query.name.rpartition("/")[2]
        key = names.to_key(name)
        terms.append("id IN (SELECT snapshot_id FROM name WHERE key >= ? AND key < ?)")
        stem = key.partition("@")[0]
        values += [key, f"{key}\0"] if is_tagged else [f"{stem}@", f"{stem}A"]
    return terms, values


def _to_values(manifest: SnapshotManifest | None) -> tuple[object, ...]:
    if manifest is None:
        return (None,) * 11
    return (
        manifest.kind,
        _to_microseconds(manifest.created_at),
        manifest.parent_id,
        manifest.sandbox_id,
        manifest.template_id,
        manifest.vcpus,
        manifest.memory_mib,
        manifest.disk_size_bytes,
        sum(record.size_bytes for record in manifest.records()),
        manifest.device_state is not None,
        manifest.envd_version,
    )


def _to_summary(row: list[Any]) -> SnapshotSummary:
    identity, kind, created_at, parent_id, sandbox_id, template_id, vcpus, memory, disk, own, has_memory, envd, keys = (
        row
    )
    return SnapshotSummary(
        snapshot_id=SnapshotId(identity),
        kind=SnapshotKind(kind),
        names=tuple(sorted(name for key in keys if (name := names.from_key(key)) is not None)),
        parent_id=None if parent_id is None else SnapshotId(parent_id),
        sandbox_id=SandboxId(sandbox_id),
        template_id=TemplateId(template_id),
        created_at=_EPOCH + timedelta(microseconds=created_at),
        vcpus=vcpus,
        memory_mib=memory,
        disk_size_bytes=disk,
        own_bytes=own,
        has_memory=bool(has_memory),
        envd_version=envd,
    )


def _by_time(summary: SnapshotSummary) -> tuple[datetime, SnapshotId]:
    return summary.created_at, summary.snapshot_id


def _to_microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
