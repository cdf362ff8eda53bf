"""The seam of `snapshots`: what a snapshot is, and what a repository of snapshots promises. Runs nothing."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field

from agentenv.base.ids import SandboxId, SnapshotId, TemplateId
from agentenv.blocks.base import FileLayer, LayerSource, ObjectLayer, RegistryLayer, Stack
from agentenv.vmm.base import MachineFacts


class SnapshotKind(StrEnum):
    """Why a snapshot was taken."""

    SNAPSHOT = "snapshot"
    """Somebody asked for it. It is listed, can have names, and lives until it is deleted."""
    PAUSE = "pause"
    """All that is left of a paused sandbox. It belongs to that sandbox and is never listed among snapshots."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file in the repository: `digest` is `sha256:<hex>` of its content."""

    digest: str
    size_bytes: int
    kind: Literal["stored"] = "stored"


LayerRef = Annotated[FileRecord | FileLayer | RegistryLayer | ObjectLayer, Field(discriminator="kind")]
"""A layer of a disk: in the repository, or of the image below, where that image keeps it."""


@dataclass(frozen=True, slots=True)
class BootFacts:
    """What the guest's daemon must be told after a cold boot from the disk."""

    environment: dict[str, str]
    default_user: str
    default_workdir: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotManifest:
    """A committed state of a sandbox. Layers are listed bottom first.

    `names` are the names that it was published under; who has a name now, `Repository.resolve` knows. `parent_id` is
    the snapshot that the sandbox stood on; it may be deleted by now. Without `device_state` there is no memory, and
    the sandbox boots cold; `memory_layers` is empty and `machine` None then. `config` is JSON of the orchestrator.
    """

    snapshot_id: SnapshotId
    kind: SnapshotKind
    names: tuple[str, ...] = ()
    parent_id: SnapshotId | None
    sandbox_id: SandboxId
    template_id: TemplateId
    created_at: datetime
    vcpus: int
    memory_mib: int
    disk_size_bytes: int
    disk_layers: tuple[LayerRef, ...]
    memory_layers: tuple[FileRecord, ...] = ()
    device_state: FileRecord | None = None
    machine: MachineFacts | None = None
    boot: BootFacts
    envd_version: str
    config: str = "{}"

    def memory_name(self) -> str:
        """Return the name of the image of this memory: equal for equal layers, so that machines share its pages."""
        digests = "".join(record.digest for record in self.memory_layers)
        return f"memory-{hashlib.sha256(digests.encode()).hexdigest()[:32]}"

    def records(self) -> tuple[FileRecord, ...]:
        """Return every file of the repository that this snapshot needs, each once."""
        disk = (layer for layer in self.disk_layers if isinstance(layer, FileRecord))
        state = () if self.device_state is None else (self.device_state,)
        return tuple({record.digest: record for record in (*disk, *self.memory_layers, *state)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSummary:
    """A line of a list. `names` are those that it has now. `own_bytes` is the size of its files in the repository."""

    snapshot_id: SnapshotId
    kind: SnapshotKind
    names: tuple[str, ...]
    parent_id: SnapshotId | None
    sandbox_id: SandboxId
    template_id: TemplateId
    created_at: datetime
    vcpus: int
    memory_mib: int
    disk_size_bytes: int
    own_bytes: int
    has_memory: bool
    envd_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotQuery:
    """What belongs in a list; None: whatever. `name` is matched with and without its tag."""

    kind: SnapshotKind | None = SnapshotKind.SNAPSHOT
    sandbox_id: SandboxId | None = None
    template_id: TemplateId | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last snapshot of a page; the next page begins behind it, whatever was added or deleted meanwhile."""

    created_at: datetime
    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class Page:
    """Snapshots, the newest first, and the cursor of the next page if there is one."""

    snapshots: tuple[SnapshotSummary, ...]
    following: Cursor | None


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """What a collection did, or would do. `set_aside` lies apart until it has been unused for long enough."""

    set_aside: tuple[FileRecord, ...]
    restored: tuple[FileRecord, ...]
    removed: tuple[FileRecord, ...]
    waiting: tuple[FileRecord, ...]
    kept_by_leases: tuple[FileRecord, ...]


class Repository(Protocol):
    """Keeps snapshots where every node of an installation finds them.

    Promises: what `publish` has returned from survives the death of this host's server, and of the host once its
    storage is back; a reader sees a whole snapshot or none; a file that a snapshot or a lease names is never removed;
    a damaged snapshot hurts no other one, and can be deleted. All verbs can be called again after a crash.

    Raises `StoreUnavailable` of `objects` when the storage does not answer, `StoreFull` when it takes no more.
    """

    async def incoming(self, snapshot_id: SnapshotId) -> Path:
        """Return an empty directory for the files of a capture, on the file system of the layers where possible.

        What an earlier attempt of the same id left there is gone. It stays until `publish` or `discard`.
        """
        ...

    async def discard(self, snapshot_id: SnapshotId) -> None:
        """Give up a capture: remove its directory, if it is there."""
        ...

    async def publish(self, manifest: SnapshotManifest, files: Mapping[str, Path]) -> None:
        """Make a snapshot exist; `files` are its new files by digest, and are taken: none is left at its path.

        Every other file that the manifest names must be in the repository already, and stays: the parent's manifest
        or a lease of the caller keeps it until then. The names move here from whichever snapshot had them. A call
        that is repeated, with or without the files, completes what the first one began. Raises `SnapshotExists` when
        the id is taken by another manifest, `SnapshotDamaged` when a file is nowhere or not of its size.
        """
        ...

    async def get(self, snapshot_id: SnapshotId) -> SnapshotManifest:
        """Return a snapshot, with its newest layers. Raises `SnapshotNotFound`, or `SnapshotDamaged`."""
        ...

    async def resolve(self, reference: str) -> SnapshotId:
        """Return what an id or a name (`name`, `name:tag`, `ns/name:tag`) stands for. Raises `SnapshotNotFound`."""
        ...

    async def point(self, name: str, snapshot_id: SnapshotId | None, *, expected: SnapshotId | None) -> None:
        """Give a name to a snapshot, or to nobody, if `expected` has it now (None: nobody has). Raises `NameTaken`."""
        ...

    async def delete(self, snapshot_id: SnapshotId) -> None:
        """Delete a snapshot and its names; damaged ones too. Raises `SnapshotNotFound`, so also the second time.

        Its children stay whole, and so does whatever runs from it: files go when nothing needs them.
        """
        ...

    async def list(self, query: SnapshotQuery, *, after: Cursor | None = None, limit: int = 100) -> Page:
        """Return one page. What other nodes published appears within `snapshots.refresh_seconds`."""
        ...

    async def children(self, snapshot_id: SnapshotId) -> tuple[SnapshotSummary, ...]:
        """Return the snapshots of every kind whose parent this is, the oldest first; also when it is deleted."""
        ...

    async def lineage(self, snapshot_id: SnapshotId) -> tuple[SnapshotSummary, ...]:
        """Return a snapshot and its ancestors, nearest first, up to the first that is deleted.

        Raises `SnapshotNotFound`.
        """
        ...

    async def tree(self, snapshot_id: SnapshotId, *, limit: int = 1000) -> tuple[SnapshotSummary, ...]:
        """Return the whole tree that a snapshot belongs to, parents before children, at most `limit` of it.

        Raises `SnapshotNotFound`.
        """
        ...

    async def layer(self, record: FileRecord) -> LayerSource:
        """Return where `blocks` reads a layer. Lease it first. Raises `SnapshotDamaged` when it is not there."""
        ...

    async def stack(self, layers: Sequence[LayerRef], size_bytes: int) -> Stack:
        """Return the stack of a manifest's disk or memory layers; as `layer` does it for each of them."""
        ...

    async def fetch(self, record: FileRecord) -> Path:
        """Return a file as a local file, checked; lease it first. Raises `SnapshotDamaged`."""
        ...

    async def lease(self, holder: str, digests: Collection[str]) -> None:
        """Keep files for `holder` (a sandbox, an operation) as well, until its release; survives our restart."""
        ...

    async def release(self, holder: str) -> None:
        """Give up everything that `holder` keeps, if anything."""
        ...

    async def settle(self, holders: Collection[str], captures: Collection[SnapshotId]) -> None:
        """At a start, when all that lives has leased again: release all holders, discard all captures, but these."""
        ...

    async def verify(self, snapshot_id: SnapshotId) -> None:
        """Read every file of a snapshot and compare it with its digest. Raises `SnapshotDamaged` naming the bad."""
        ...

    async def collect(self, *, dry_run: bool = False) -> CollectionReport:
        """Remove files that no snapshot and no lease of any node has needed for `snapshots.grace_seconds`."""
        ...

    async def image_layers(self) -> frozenset[str]:
        """Return the digests of layers outside the repository that snapshots stand on: images must keep those."""
        ...
