"""The seam of `objects`: what storage shared by nodes promises. Knows nothing of what is stored."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NewType, Protocol

Version = NewType("Version", str)


@dataclass(frozen=True, slots=True)
class Cell:
    """A small document and the version it has; the version changes with every write, whatever is written."""

    content: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """Where a blob can be read by range from an S3-compatible store."""

    endpoint: str
    bucket: str
    key: str
    credentials_path: Path | None


class ObjectStore(Protocol):
    """Blobs, and cells.

    A blob is a file named `sha256:<hex>`, whole or absent, never changed. A cell is a document of at most
    `CELL_LIMIT_BYTES` under a kind (`[a-z]+`) and a key (`[A-Za-z0-9._@-]+`).

    Promises: what a call has returned from is durable and seen by every node, soon; of two writers of a cell that
    expected the same version one fails; a killed caller leaves nothing but temporary files, which `sweep` removes.
    Raises `StoreUnavailable` and `StoreFull`, and nothing else where nothing else is said.
    """

    async def start(self) -> None:
        """Make the storage ready, and prove that it keeps the promises. Raises `StoreUnfit`."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...

    async def workspace(self, name: str) -> Path:
        """Return an empty local directory called `name` from whose files blobs are made cheaply."""
        ...

    async def drop_workspace(self, name: str) -> None:
        """Remove a workspace, if there is one."""
        ...

    async def workspaces(self) -> list[str]:
        """Return the names of the workspaces that this node has."""
        ...

    async def put_blob(self, digest: str, source: Path) -> None:
        """Store a file under its digest and take it: it is gone from `source` afterwards.

        A blob that is there in the same size stays as it is, the same file; one of another size is damaged and is
        replaced.
        """
        ...

    async def blob_size(self, digest: str) -> int | None:
        """Return the size of a blob, or None when there is none."""
        ...

    async def locate_blob(self, digest: str) -> Path | ObjectAddress:
        """Return where a blob is best read; it need not be there."""
        ...

    async def local_blob(self, digest: str) -> Path | None:
        """Return a local file with the content of a blob, or None when there is none.

        A copy is checked against the digest before it gets its name, and stays at least until the next `trim`.
        """
        ...

    async def trim(self, keep: Collection[str]) -> list[str]:
        """Remove local copies beyond the limit, but none of `keep`; return the digests of those removed."""
        ...

    async def digest_blob(self, digest: str) -> str | None:
        """Read a blob and return the digest that its content has, or None when there is none."""
        ...

    async def blobs(self) -> Mapping[str, int]:
        """Return all blobs with their sizes."""
        ...

    async def set_aside(self, digest: str) -> None:
        """Take a blob out, so that it is not there for `blob_size`, but can be restored. Nothing when absent."""
        ...

    async def restore(self, digest: str) -> bool:
        """Put a blob back that was set aside; False when none is. A blob that came meanwhile stays."""
        ...

    async def aside(self) -> Mapping[str, int]:
        """Return all blobs that are set aside with their sizes."""
        ...

    async def purge(self, digest: str) -> None:
        """Remove for good what is set aside under a digest."""
        ...

    async def read_cell(self, kind: str, key: str) -> Cell | None:
        """Return a cell, or None when nobody ever wrote it, or forgot it."""
        ...

    async def read_cells(self, kind: str, hints: Mapping[str, Version]) -> Mapping[str, Cell]:
        """Return many cells, faster than one by one; `hints` are the versions that `cells` told.

        One that is gone, or cannot be read, is not among them, and has no effect on the others.
        """
        ...

    async def write_cell(self, kind: str, key: str, content: bytes, *, expected: Version | None) -> Version:
        """Write a cell if it still has the `expected` version (None: is not there). Raises `CellChanged`."""
        ...

    async def forget_cell(self, kind: str, key: str) -> None:
        """Remove a cell whatever it holds. Only for a key that is never written again, or by one node only."""
        ...

    async def cells(self, kind: str) -> Mapping[str, Version]:
        """Return the keys and versions of all cells of a kind, without reading them."""
        ...

    async def sweep(self) -> list[str]:
        """Remove temporary files that a killed process of this node left; return their names."""
        ...


CELL_LIMIT_BYTES = 16 * 1024 * 1024
