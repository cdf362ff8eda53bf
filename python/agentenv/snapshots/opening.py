"""Builds a repository from its settings, brings its index up to date, and runs its loops."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import aio, files
from agentenv.base.clock import Clock
from agentenv.base.ids import parse_snapshot_id
from agentenv.blocks.layers import LayerFiles
from agentenv.objects.base import ObjectStore
from agentenv.objects.bucket import BucketStore
from agentenv.objects.directory import DirectoryStore
from agentenv.objects.settings import ObjectsSettings
from agentenv.snapshots.access import Access
from agentenv.snapshots.catalogue import MANIFESTS, NAMES, Catalogue
from agentenv.snapshots.collection import Collector
from agentenv.snapshots.compaction import Compactor, Merger
from agentenv.snapshots.files import SnapshotFiles
from agentenv.snapshots.leases import LEASES, Leases
from agentenv.snapshots.merging import LayerMerger
from agentenv.snapshots.refresh import Refresh
from agentenv.snapshots.repository import SharedRepository, is_own_holder
from agentenv.snapshots.retention import Retention
from agentenv.snapshots.settings import RepositoryKind, SnapshotsSettings

KINDS = (MANIFESTS, NAMES, LEASES)
_TELL_SECONDS = 15
_COMPACT_SECONDS = 10
_READERS = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """A repository, and what its loops turn."""

    repository: SharedRepository
    catalogue: Catalogue
    refresh: Refresh
    leases: Leases
    collector: Collector
    compactor: Compactor
    retention: Retention


@asynccontextmanager
async def open_repository(
    settings: SnapshotsSettings, objects: ObjectsSettings, home: Path, clock: Clock
) -> AsyncIterator[SharedRepository]:
    """Open the repository that the settings describe. What this node keeps for itself lies in `home/repository`.

    The caller leases again for what it adopts, and then calls `settle`.
    """
    local = home / "repository"
    node = _name_node(local)
    store = make_store(settings, objects, home, local=local, node=node)
    async with AsyncExitStack() as stack:
        threads = aio.BlockingPool("snapshots-merge", 1)
        stack.callback(threads.close)
        merger = LayerMerger(LayerFiles(threads))
        parts = await stack.enter_async_context(
            assemble(store, settings, local=local, node=node, clock=clock, merger=merger)
        )
        await parts.refresh.run()
        loops = aio.Supervisor(clock)
        stack.push_async_callback(loops.stop)
        loops.every("snapshot_leases", _TELL_SECONDS, parts.leases.tell)
        loops.every("snapshot_index", settings.refresh_seconds, parts.refresh.run)
        loops.every("snapshot_collection", settings.collect_interval_seconds, parts.collector.collect)
        loops.every("snapshot_retention", settings.collect_interval_seconds, parts.retention.turn)
        loops.every("snapshot_compaction", _COMPACT_SECONDS, parts.compactor.turn)
        yield parts.repository


def make_store(
    settings: SnapshotsSettings, objects: ObjectsSettings, home: Path, *, local: Path, node: str
) -> ObjectStore:
    """Return the store that the settings describe; it is not started. `local` and `node` are for this user alone."""
    match settings.repository:
        case RepositoryKind.POSIX_FS:
            return DirectoryStore(settings.directory or home / "snapshots", node=node, kinds=KINDS)
        case RepositoryKind.OSS:
            return BucketStore(objects, local)


@asynccontextmanager
async def assemble(
    store: ObjectStore, settings: SnapshotsSettings, *, local: Path, node: str, clock: Clock, merger: Merger
) -> AsyncIterator[Parts]:
    """Build a repository over a store, without loops, and remove what work of an earlier process left."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await store.start()
        access = Access(local / "index.db")
        stack.callback(access.close)
        await access.open()
        readers = aio.BlockingPool("snapshot-files", _READERS)
        stack.callback(readers.close)
        parts = _build(
            store=store,
            access=access,
            files=SnapshotFiles(store, readers),
            settings=settings,
            node=node,
            clock=clock,
            merger=merger,
        )
        await parts.leases.release_unless(lambda holder: not is_own_holder(holder))
        for name in await store.workspaces():
            if parse_snapshot_id(name) is None:  # not of a capture, with which somebody may go on
                await store.drop_workspace(name)
        await store.sweep()
        yield parts


def _build(
    *,
    store: ObjectStore,
    access: Access,
    files: SnapshotFiles,
    settings: SnapshotsSettings,
    node: str,
    clock: Clock,
    merger: Merger,
) -> Parts:
    catalogue = Catalogue(store, access, clock)
    refresh = Refresh(store, access, catalogue, clock)
    leases = Leases(store=store, access=access, clock=clock, node=node, expiry_seconds=settings.lease_expiry_seconds)
    collector = Collector(
        store=store,
        access=access,
        catalogue=catalogue,
        refresh=refresh,
        leases=leases,
        clock=clock,
        grace_seconds=settings.grace_seconds,
    )
    compactor = Compactor(
        store=store,
        access=access,
        catalogue=catalogue,
        files=files,
        leases=leases,
        merger=merger,
        limit=settings.compact_above_layers,
    )
    repository = SharedRepository(
        store=store,
        access=access,
        catalogue=catalogue,
        leases=leases,
        collector=collector,
        files=files,
        clock=clock,
        compact_above_layers=settings.compact_above_layers,
    )
    retention = Retention(repository, access, clock, settings.retention_seconds)
    return Parts(repository, catalogue, refresh, leases, collector, compactor, retention)


def _name_node(local: Path) -> str:
    """Return the name under which this home is known in the repository; made once."""
    path = local / "node"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        name = f"node-{secrets.token_hex(8)}"
        files.write_atomically(path, name.encode())
        return name
