"""Builds a repository from its settings, brings its index up to date, and runs its loops."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import aio, files
from agentenv.base.clock import Clock
from agentenv.objects.base import ObjectStore
from agentenv.objects.bucket import BucketStore
from agentenv.objects.directory import DirectoryStore
from agentenv.objects.settings import ObjectsSettings
from agentenv.snapshots.access import Access
from agentenv.snapshots.catalogue import MANIFESTS, NAMES, Catalogue
from agentenv.snapshots.collection import Collector
from agentenv.snapshots.leases import LEASES, Leases
from agentenv.snapshots.refresh import Refresh
from agentenv.snapshots.repository import PUBLISHING, SharedRepository
from agentenv.snapshots.settings import RepositoryKind, SnapshotsSettings

KINDS = (MANIFESTS, NAMES, LEASES)
_TELL_SECONDS = 15
_READERS = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """A repository, and what its loops turn."""

    repository: SharedRepository
    catalogue: Catalogue
    refresh: Refresh
    leases: Leases
    collector: Collector


@asynccontextmanager
async def open_repository(
    settings: SnapshotsSettings, objects: ObjectsSettings, home: Path, clock: Clock
) -> AsyncIterator[SharedRepository]:
    """Open the repository that the settings describe. What this node keeps for itself lies in `home/repository`.

    The caller leases again for what it adopts, and then calls `settle`.
    """
    local = home / "repository"
    node = _name_node(local)
    store = make_store(settings, objects, home, node)
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(assemble(store, settings, local=local, node=node, clock=clock))
        await parts.refresh.run()
        loops = aio.Supervisor(clock)
        stack.push_async_callback(loops.stop)
        loops.every("snapshot_leases", _TELL_SECONDS, parts.leases.tell)
        loops.every("snapshot_index", settings.refresh_seconds, parts.refresh.run)
        loops.every("snapshot_collection", settings.collect_interval_seconds, parts.collector.collect)
        yield parts.repository


def make_store(settings: SnapshotsSettings, objects: ObjectsSettings, home: Path, node: str) -> ObjectStore:
    """Return the store that the settings describe; it is not started."""
    match settings.repository:
        case RepositoryKind.POSIX_FS:
            return DirectoryStore(settings.directory or home / "snapshots", node=node, kinds=KINDS)
        case RepositoryKind.OSS:
            return BucketStore(objects, home / "repository")


@asynccontextmanager
async def assemble(
    store: ObjectStore, settings: SnapshotsSettings, *, local: Path, node: str, clock: Clock
) -> AsyncIterator[Parts]:
    """Build a repository over a store, without loops. Publications of an earlier process hold nothing any more."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await store.start()
        access = Access(local / "index.db")
        stack.callback(access.close)
        await access.open()
        catalogue = Catalogue(store, access, clock)
        refresh = Refresh(store, access, catalogue, clock)
        leases = Leases(
            store=store, access=access, clock=clock, node=node, expiry_seconds=settings.lease_expiry_seconds
        )
        collector = Collector(
            store=store,
            access=access,
            catalogue=catalogue,
            refresh=refresh,
            leases=leases,
            clock=clock,
            grace_seconds=settings.grace_seconds,
        )
        await leases.release_unless(lambda holder: not holder.startswith(PUBLISHING))
        # Not the thread of the index, which must not wait while a file is read.
        readers = aio.BlockingPool("snapshot-files", _READERS)
        stack.callback(readers.close)
        repository = SharedRepository(
            store=store, access=access, catalogue=catalogue, leases=leases, collector=collector, pool=readers
        )
        yield Parts(repository, catalogue, refresh, leases, collector)


def _name_node(local: Path) -> str:
    """Return the name under which this home is known in the repository; made once."""
    path = local / "node"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        name = f"node-{secrets.token_hex(8)}"
        files.write_atomically(path, name.encode())
        return name
