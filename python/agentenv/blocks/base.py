"""The seam of `blocks`: what disks and memory images are made of, and what their store promises."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field

from agentenv.base.ids import SandboxId


@dataclass(frozen=True, slots=True)
class FileLayer:
    """A sealed layer in a local file. `digest` is `sha256:<hex>` of the file; None where nobody has computed it."""

    path: Path
    digest: str | None = None
    kind: Literal["file"] = "file"


@dataclass(frozen=True, slots=True)
class RegistryLayer:
    """A sealed layer in an OCI registry, read by range. `repository` is `https://host/v2/name`."""

    repository: str
    digest: str
    size_bytes: int
    credentials_path: Path | None = None
    kind: Literal["registry"] = "registry"


@dataclass(frozen=True, slots=True)
class ObjectLayer:
    """A sealed layer in an S3-compatible object store, read by range."""

    endpoint: str
    bucket: str
    key: str
    digest: str
    size_bytes: int
    credentials_path: Path | None = None
    kind: Literal["object"] = "object"


LayerSource = Annotated[FileLayer | RegistryLayer | ObjectLayer, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Stack:
    """Immutable layers, bottom first (1 to 255), and the size in bytes that whoever opens them sees."""

    layers: tuple[LayerSource, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that a virtual machine can open now. `size_bytes` is what the guest sees."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FrozenLayer:
    """The state of a disk at one moment, on its way to the file `path`."""

    sandbox_id: SandboxId
    seal_id: str
    path: Path


@dataclass(frozen=True, slots=True)
class SealedLayer:
    """A durable layer: its file, its length, and `sha256:<hex>` of its content."""

    path: Path
    size_bytes: int
    digest: str


class BlockStore(Protocol):
    """Gives sandboxes disks and memory images made of layers, and takes them back.

    Promises: a layer is never written; `create` leaves a whole disk or nothing; `remove`, `close_memory` and `sealed`
    can be called again; disks and images live on while no server runs, and `find` has them again afterwards.
    """

    async def create(self, sandbox_id: SandboxId, base: Stack, *, owner: int, size_bytes: int | None = None) -> Disk:
        """Return a new writable disk over `base`, readable and writable by user id `owner`.

        `size_bytes` makes it larger than its base, never smaller.
        """
        ...

    async def find(self, sandbox_id: SandboxId) -> Disk | None:
        """Return the disk of a sandbox, if it has one."""
        ...

    async def remove(self, sandbox_id: SandboxId) -> None:
        """Delete the disk of a sandbox, if it has one, with what only this disk needs of layers."""
        ...

    async def collect(self, keep: frozenset[SandboxId]) -> list[str]:
        """Delete what belongs to no sandbox in `keep` (leftovers of a killed server); return the names removed.

        Memory images are not touched: whoever keeps the records of snapshots closes those.
        """
        ...

    async def wait_lost(self, sandbox_id: SandboxId) -> str:
        """Return why the disk of a sandbox is useless, once it is; a machine on it cannot go on then."""
        ...

    async def stack(self, sandbox_id: SandboxId) -> Stack:
        """Return the sealed layers of a disk, bottom first; each layer that was frozen here has its digest."""
        ...

    async def freeze(self, sandbox_id: SandboxId, seal_id: str, into: Path) -> FrozenLayer:
        """Begin to keep what the disk holds at this moment; the disk goes on with a new writable layer.

        Within a millisecond on the side of the guest. Whoever wants a moment that is whole stops the guest around
        this call. An equal `seal_id` is the same moment. When it raises, the disk is as it was.
        """
        ...

    async def sealed(self, frozen: FrozenLayer) -> SealedLayer:
        """Return when the frozen layer is durable at its path and part of the disk's stack.

        The file is the caller's to rename or delete: the disk has a name of its own for the same bytes.
        """
        ...

    async def open_memory(self, name: str, stack: Stack) -> Path:
        """Return a read-only file with the content of `stack` that every machine may map MAP_PRIVATE.

        An equal name is an equal content and the same inode, so machines share its pages. Can be called again.
        """
        ...

    async def close_memory(self, name: str) -> bool:
        """Close a memory image; False when a machine still has it open, and it stays then."""
        ...

    async def memory_images(self) -> list[str]:
        """Return the names of the memory images that are open."""
        ...
