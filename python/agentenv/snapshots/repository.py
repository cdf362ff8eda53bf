"""The repository: what makes a snapshot appear whole, and go for good, over any object store. Collects nothing."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from agentenv.base import log
from agentenv.base.clock import Clock
from agentenv.base.errors import Bug
from agentenv.base.ids import SnapshotId, parse_snapshot_id
from agentenv.blocks.base import LayerSource, Stack
from agentenv.objects.base import ObjectStore
from agentenv.snapshots import names
from agentenv.snapshots.access import Access
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
from agentenv.snapshots.catalogue import Catalogue
from agentenv.snapshots.collection import Collector
from agentenv.snapshots.compaction import COMPACTING, LONG, is_long
from agentenv.snapshots.errors import NameInvalid, NameTaken, SnapshotDamaged, SnapshotNotFound
from agentenv.snapshots.files import SnapshotFiles
from agentenv.snapshots.index import Index
from agentenv.snapshots.leases import Leases
from agentenv.snapshots.ledger import Ledger

_PUBLISHING = "publish:"
_log = log.get("snapshots")


def is_own_holder(holder: str) -> bool:
    """Return whether a lease is of work inside the repository, which ends with the process."""
    return holder.startswith((_PUBLISHING, COMPACTING))


class SharedRepository:
    """A repository that several nodes may use at once, each through an object of this class.

    Order of a publication: files stored; those that were there already found; manifest written, from here on the
    snapshot exists; files found again; names given. A collector first takes a file away and then looks for manifests,
    so whichever of the two comes second sees the other, and puts the file back.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        access: Access,
        catalogue: Catalogue,
        leases: Leases,
        collector: Collector,
        files: SnapshotFiles,
        clock: Clock,
        compact_above_layers: int,
    ) -> None:
        self._store = store
        self._access = access
        self._catalogue = catalogue
        self._leases = leases
        self._collector = collector
        self._files = files
        self._clock = clock
        self._compact_above_layers = compact_above_layers

    async def incoming(self, snapshot_id: SnapshotId) -> Path:
        """Return an empty directory for the files of a capture."""
        return await self._store.workspace(snapshot_id)

    async def discard(self, snapshot_id: SnapshotId) -> None:
        """Remove the directory of a capture."""
        await self._store.drop_workspace(snapshot_id)

    async def publish(self, manifest: SnapshotManifest, files: Mapping[str, Path]) -> None:
        """Make a snapshot exist."""
        records = {record.digest: record for record in manifest.records()}
        if not files.keys() <= records.keys():
            raise Bug(f"snapshot {manifest.snapshot_id} is published with files that its manifest does not name")
        holder = f"{_PUBLISHING}{manifest.snapshot_id}"
        await self._leases.take(holder, records)
        try:
            await self._files.put_all({records[digest]: path for digest, path in files.items()})
            await self._files.require(records.values())
            await self._catalogue.create(manifest)
            await self._files.require(records.values())
            for name in manifest.names:
                await self._catalogue.move(name, manifest.snapshot_id)
            if is_long(manifest, self._compact_above_layers):
                await self._access.ledger(Ledger.note, LONG, manifest.snapshot_id, self._clock.now().timestamp())
        finally:
            await self._leases.release(holder)
        await self._store.drop_workspace(manifest.snapshot_id)

    async def get(self, snapshot_id: SnapshotId) -> SnapshotManifest:
        """Return a snapshot."""
        return (await self._catalogue.read(snapshot_id))[0]

    async def resolve(self, reference: str) -> SnapshotId:
        """Return what an id or a name stands for."""
        snapshot_id = parse_snapshot_id(reference)
        if snapshot_id is None:
            try:
                snapshot_id = await self._catalogue.holder_of(names.canonical(reference))
            except NameInvalid:
                snapshot_id = None
        if snapshot_id is None:
            raise SnapshotNotFound(f"snapshot '{reference[:128]}' not found")
        try:
            await self._catalogue.read(snapshot_id)
        except SnapshotDamaged:
            return snapshot_id  # whoever deletes it must find it
        return snapshot_id

    async def point(self, name: str, snapshot_id: SnapshotId | None, *, expected: SnapshotId | None) -> None:
        """Give a name to a snapshot, or to nobody."""
        if snapshot_id is not None:
            await self._catalogue.read(snapshot_id)
        await self._catalogue.point(names.canonical(name), snapshot_id, expected=expected)

    async def delete(self, snapshot_id: SnapshotId) -> None:
        """Delete a snapshot and its names."""
        known_as = await self._access.read(Index.names_of, snapshot_id)
        try:
            known_as += (await self.get(snapshot_id)).names
        except SnapshotDamaged as error:
            _log.warning("damaged_snapshot_deleted", snapshot_id=snapshot_id, reason=error.message)
        await self._catalogue.bury(snapshot_id)
        for name in dict.fromkeys(known_as):
            try:
                await self._catalogue.point(name, None, expected=snapshot_id)
            except NameTaken:
                continue  # another snapshot has it, or nobody

    async def list(self, query: SnapshotQuery, *, after: Cursor | None = None, limit: int = 100) -> Page:
        """Return one page."""
        try:
            return await self._access.read(Index.page, query, after, limit)
        except NameInvalid:
            return Page((), None)

    async def children(self, snapshot_id: SnapshotId) -> tuple[SnapshotSummary, ...]:
        """Return the children of a snapshot."""
        return tuple(await self._access.read(Index.children, snapshot_id))

    async def lineage(self, snapshot_id: SnapshotId) -> tuple[SnapshotSummary, ...]:
        """Return a snapshot and its ancestors."""
        found = await self._access.read(Index.lineage, snapshot_id)
        if not found:
            raise SnapshotNotFound(f"snapshot '{snapshot_id}' not found")
        return tuple(found)

    async def tree(self, snapshot_id: SnapshotId, *, limit: int = 1000) -> tuple[SnapshotSummary, ...]:
        """Return the tree that a snapshot is in."""
        await self.lineage(snapshot_id)
        return tuple(await self._access.read(Index.tree, snapshot_id, limit))

    async def layer(self, record: FileRecord) -> LayerSource:
        """Return where a layer is read."""
        return await self._files.layer(record)

    async def stack(self, layers: Sequence[LayerRef], size_bytes: int) -> Stack:
        """Return where all layers are read."""
        found = await self._files.layers([layer for layer in layers if isinstance(layer, FileRecord)])
        sources = (found[layer] if isinstance(layer, FileRecord) else layer for layer in layers)
        return Stack(tuple(sources), size_bytes)

    async def fetch(self, record: FileRecord) -> Path:
        """Return a file as a local file."""
        return await self._files.fetch(record)

    async def lease(self, holder: str, digests: Collection[str]) -> None:
        """Keep files for a holder."""
        assert not is_own_holder(holder), "who works inside the repository leases for itself"
        await self._leases.take(holder, digests)

    async def release(self, holder: str) -> None:
        """Give up what a holder keeps."""
        await self._leases.release(holder)

    async def settle(self, holders: Collection[str], captures: Collection[SnapshotId]) -> None:
        """Give up what an earlier process left and nobody goes on with."""
        released = await self._leases.release_unless(lambda holder: holder in holders or is_own_holder(holder))
        left = [name for name in await self._store.workspaces() if parse_snapshot_id(name) and name not in captures]
        for name in left:
            await self._store.drop_workspace(name)
        if released or left:
            _log.info("leftovers_removed", leases=released, captures=left)

    async def verify(self, snapshot_id: SnapshotId) -> None:
        """Read every file of a snapshot."""
        manifest = await self.get(snapshot_id)
        await self._files.verify(manifest.records())

    async def collect(self, *, dry_run: bool = False) -> CollectionReport:
        """Remove files that nothing needs."""
        return await self._collector.collect(dry_run=dry_run)

    async def image_layers(self) -> frozenset[str]:
        """Return the digests of layers outside the repository."""
        return await self._access.read(Index.outside)
