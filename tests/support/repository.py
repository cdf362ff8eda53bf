"""A repository of snapshots in a directory and in memory, which outlives the fake servers that use it."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentenv.base import trees
from agentenv.base.ids import SnapshotId, parse_snapshot_id
from agentenv.blocks.base import FileLayer, LayerSource, Stack
from agentenv.snapshots import names
from agentenv.snapshots.base import (
    CollectionReport,
    Cursor,
    FileRecord,
    LayerRef,
    Page,
    SnapshotManifest,
    SnapshotQuery,
    SnapshotSummary,
)
from agentenv.snapshots.errors import SnapshotDamaged, SnapshotNotFound
from support.stops import Stops


@dataclass
class FakeRepository:
    """Implements `Repository`."""

    stops: Stops
    directory: Path
    manifests: dict[SnapshotId, SnapshotManifest] = field(default_factory=dict)
    owners: dict[str, SnapshotId] = field(default_factory=dict)
    leases: dict[str, set[str]] = field(default_factory=dict)

    async def incoming(self, snapshot_id: SnapshotId) -> Path:
        await self.stops.pass_by("repository.incoming")
        path = self._incoming(snapshot_id)
        trees.remove(path)
        path.mkdir(parents=True)
        return path

    async def discard(self, snapshot_id: SnapshotId) -> None:
        trees.remove(self._incoming(snapshot_id))

    async def publish(self, manifest: SnapshotManifest, files: Mapping[str, Path]) -> None:
        await self.stops.pass_by("repository.publish")
        for digest, path in files.items():
            assert digest == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
            path.replace(self._file(digest))
        for record in manifest.records():
            if not self._file(record.digest).exists():
                raise SnapshotDamaged(f"{record.digest} is not there")
        self.manifests[manifest.snapshot_id] = manifest
        self.owners.update(dict.fromkeys(manifest.names, manifest.snapshot_id))
        await self.discard(manifest.snapshot_id)
        await self.stops.pass_by("repository.published")

    async def get(self, snapshot_id: SnapshotId) -> SnapshotManifest:
        await self.stops.pass_by("repository.get")
        if snapshot_id not in self.manifests:
            raise SnapshotNotFound(f"snapshot '{snapshot_id}' not found")
        return self.manifests[snapshot_id]

    async def resolve(self, reference: str) -> SnapshotId:
        snapshot_id = parse_snapshot_id(reference) or self.owners.get(names.canonical(reference))
        if snapshot_id not in self.manifests:
            raise SnapshotNotFound(f"snapshot '{reference}' not found")
        return snapshot_id

    async def point(self, name: str, snapshot_id: SnapshotId | None, *, expected: SnapshotId | None) -> None:
        raise NotImplementedError

    async def delete(self, snapshot_id: SnapshotId) -> None:
        await self.stops.pass_by("repository.delete")
        if self.manifests.pop(snapshot_id, None) is None:
            raise SnapshotNotFound(f"snapshot '{snapshot_id}' not found")
        self.owners = {name: owner for name, owner in self.owners.items() if owner != snapshot_id}

    def under_way(self) -> list[str]:
        """Return the captures whose directories are there."""
        root = self.directory / "incoming"
        return [entry.name for entry in root.iterdir()] if root.exists() else []

    async def list(self, query: SnapshotQuery, *, after: Cursor | None = None, limit: int = 100) -> Page:
        await self.stops.pass_by("repository.list")
        name = None if query.name is None else names.canonical(query.name)
        found = [
            _summary(one)
            for one in self.manifests.values()
            if query.kind in {None, one.kind}
            and query.sandbox_id in {None, one.sandbox_id}
            and (name is None or self.owners.get(name) == one.snapshot_id)
        ]
        found.sort(key=lambda one: (one.created_at, one.snapshot_id), reverse=True)
        if after is not None:
            found = [one for one in found if (one.created_at, one.snapshot_id) < (after.created_at, after.snapshot_id)]
        page = tuple(found[:limit])
        return Page(page, Cursor(page[-1].created_at, page[-1].snapshot_id) if len(found) > limit else None)

    async def children(self, snapshot_id: SnapshotId) -> tuple[SnapshotSummary, ...]:
        return tuple(_summary(one) for one in self.manifests.values() if one.parent_id == snapshot_id)

    async def lineage(self, snapshot_id: SnapshotId) -> tuple[SnapshotSummary, ...]:
        found = [_summary(await self.get(snapshot_id))]
        while (parent := found[-1].parent_id) in self.manifests and parent is not None:
            found.append(_summary(self.manifests[parent]))
        return tuple(found)

    async def tree(self, snapshot_id: SnapshotId, *, limit: int = 1000) -> tuple[SnapshotSummary, ...]:
        found = [(await self.lineage(snapshot_id))[-1]]
        for one in found:
            found.extend(await self.children(one.snapshot_id))
        return tuple(found[:limit])

    async def stack(self, layers: Sequence[LayerRef], size_bytes: int) -> Stack:
        await self.stops.pass_by("repository.stack")
        found = [await self.layer(one) if isinstance(one, FileRecord) else one for one in layers]
        return Stack(tuple(found), size_bytes)

    async def layer(self, record: FileRecord) -> LayerSource:
        return FileLayer(await self.fetch(record), record.digest)

    async def fetch(self, record: FileRecord) -> Path:
        path = self._file(record.digest)
        if not path.exists():
            raise SnapshotDamaged(f"{record.digest} is not there")
        return path

    async def lease(self, holder: str, digests: Collection[str]) -> None:
        await self.stops.pass_by("repository.lease")
        self.leases.setdefault(holder, set()).update(digests)

    async def release(self, holder: str) -> None:
        await self.stops.pass_by("repository.release")
        self.leases.pop(holder, None)

    async def settle(self, holders: Collection[str], captures: Collection[SnapshotId]) -> None:
        self.leases = {holder: kept for holder, kept in self.leases.items() if holder in holders}
        for name in self.under_way():
            if name not in captures:
                await self.discard(SnapshotId(name))

    async def verify(self, snapshot_id: SnapshotId) -> None:
        raise NotImplementedError

    async def collect(self, *, dry_run: bool = False) -> CollectionReport:
        """Remove at once what nothing needs: the hardest collector that the promises allow."""
        needed = set().union(*self.leases.values())
        for manifest in self.manifests.values():
            needed.update(record.digest for record in manifest.records())
        for path in self._files().iterdir():
            if f"sha256:{path.name}" not in needed:
                path.unlink()
        return CollectionReport((), (), (), (), ())

    async def image_layers(self) -> frozenset[str]:
        return frozenset()

    def break_files(self) -> None:
        for path in self._files().iterdir():
            path.unlink()

    def _incoming(self, snapshot_id: SnapshotId) -> Path:
        return self.directory / "incoming" / snapshot_id

    def _file(self, digest: str) -> Path:
        return self._files() / digest.removeprefix("sha256:")

    def _files(self) -> Path:
        path = self.directory / "files"
        path.mkdir(parents=True, exist_ok=True)
        return path


def _summary(manifest: SnapshotManifest) -> SnapshotSummary:
    return SnapshotSummary(
        snapshot_id=manifest.snapshot_id,
        kind=manifest.kind,
        names=manifest.names,
        parent_id=manifest.parent_id,
        sandbox_id=manifest.sandbox_id,
        template_id=manifest.template_id,
        created_at=manifest.created_at,
        vcpus=manifest.vcpus,
        memory_mib=manifest.memory_mib,
        disk_size_bytes=manifest.disk_size_bytes,
        own_bytes=0,
        has_memory=manifest.device_state is not None,
        envd_version=manifest.envd_version,
    )
