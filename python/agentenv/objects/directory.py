"""An object store in a directory: of this host, or shared by nodes over NFS and the like.

Needs of the file system: hard links, `rename` that replaces, and an `fsync` that tells the truth. Uses no file locks.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from agentenv.base import files
from agentenv.base.aio import BlockingPool
from agentenv.objects import names
from agentenv.objects.base import Cell, ObjectAddress, Version
from agentenv.objects.errors import StoreUnfit, translated
from agentenv.objects.generations import Generations
from agentenv.objects.node_files import NodeFiles

_T = TypeVar("_T")
_THREADS = 4
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class DirectoryStore:
    """Blobs in `layers/sha256`, cells in a directory per kind, and a node's own files below `nodes/<node>`.

    Order of a blob: content synced, linked under its digest, directory synced, and only then the source removed.
    """

    def __init__(self, root: Path, *, node: str, kinds: tuple[str, ...]) -> None:
        self._root = root
        self._blobs = root / "layers" / "sha256"
        self._aside = root / "aside" / "sha256"
        self._own = NodeFiles(root / "nodes" / node)
        self._cells = {kind: Generations(root / kind, self._own.temporary) for kind in kinds}
        self._pool = BlockingPool("objects", _THREADS)

    async def start(self) -> None:
        """Make the directories; prove that hard links are exclusive here. Raises `StoreUnfit`."""
        await self._run(f"preparing {self._root}", self._start)

    def _start(self) -> None:
        for directory in (self._blobs, self._aside):
            directory.mkdir(parents=True, exist_ok=True)
        self._own.make()
        self._root.chmod(0o700)
        for cells in self._cells.values():
            cells.make()
        files.sync_directory(self._root)
        self._prove_links()

    def _prove_links(self) -> None:
        first = self._own.new_temporary()
        second = first.with_suffix(".link")
        try:
            first.touch()
            try:
                os.link(first, second)
                os.link(first, second)
            except FileExistsError:
                return
            except OSError as error:
                raise StoreUnfit(f"{self._root} cannot hold snapshots: no hard links ({error.strerror})") from error
            raise StoreUnfit(f"{self._root} cannot hold snapshots: a hard link there replaces a file of its name")
        finally:
            first.unlink(missing_ok=True)
            second.unlink(missing_ok=True)

    async def close(self) -> None:
        """End the threads."""
        self._pool.close()

    async def workspace(self, name: str) -> Path:
        """Return an empty directory on the file system of the blobs."""
        return await self._run(f"making workspace {name}", self._own.make_workspace, name)

    async def drop_workspace(self, name: str) -> None:
        """Remove a workspace, if there is one."""
        await self._run(f"removing workspace {name}", self._own.drop_workspace, name)

    async def workspaces(self) -> list[str]:
        """Return the names of this node's workspaces."""
        return await self._run("listing workspaces", self._own.workspaces)

    async def put_blob(self, digest: str, source: Path) -> None:
        """Store a file and take it; a copy is made only when it comes from another file system."""
        blob = self._blob(digest)
        await self._run(f"storing {digest}", lambda: self._put(blob, source))

    def _put(self, blob: Path, source: Path) -> None:
        _sync_file(source)
        try:
            self._link_or_keep(source, blob)
        except OSError as error:
            if not _is_foreign(error):
                raise
            copy = self._own.new_temporary()
            try:
                shutil.copyfile(source, copy)
                _sync_file(copy)
                self._link_or_keep(copy, blob)
            finally:
                copy.unlink(missing_ok=True)
        files.sync_directory(blob.parent)
        source.unlink(missing_ok=True)

    def _link_or_keep(self, source: Path, blob: Path) -> None:
        try:
            os.link(source, blob)
        except FileExistsError:
            if _size(blob) != source.stat().st_size:
                source.replace(blob)

    async def blob_size(self, digest: str) -> int | None:
        """Return the size of a blob, or None."""
        return await self._run(f"looking for {digest}", _size, self._blob(digest))

    async def locate_blob(self, digest: str) -> Path | ObjectAddress:
        """Return the file of a blob."""
        return self._blob(digest)

    async def local_blob(self, digest: str) -> Path | None:
        """Return the file of a blob, or None."""
        return None if await self.blob_size(digest) is None else self._blob(digest)

    async def trim(self, keep: Collection[str]) -> list[str]:
        """Remove nothing: there are no copies."""
        del keep
        return []

    async def digest_blob(self, digest: str) -> str | None:
        """Read a blob and return the digest of its content."""
        return await self._run(f"reading {digest}", _digest, self._blob(digest))

    async def blobs(self) -> Mapping[str, int]:
        """Return all blobs with their sizes."""
        return await self._run("listing layers", _list_blobs, self._blobs)

    async def set_aside(self, digest: str) -> None:
        """Rename a blob out of the way."""
        await self._run(f"setting {digest} aside", lambda: self._move(self._blob(digest), self._put_aside(digest)))

    async def restore(self, digest: str) -> bool:
        """Link a blob back under its name."""
        return await self._run(f"restoring {digest}", self._restore, digest)

    def _restore(self, digest: str) -> bool:
        aside, blob = self._put_aside(digest), self._blob(digest)
        try:
            os.link(aside, blob)
        except FileExistsError:
            pass
        except FileNotFoundError:
            return False
        files.sync_directory(blob.parent)
        aside.unlink(missing_ok=True)
        return True

    def _move(self, source: Path, target: Path) -> None:
        try:
            source.replace(target)
        except FileNotFoundError:
            return
        os.utime(target)  # from now on it counts as set aside
        files.sync_directory(target.parent)
        files.sync_directory(source.parent)

    async def aside(self) -> Mapping[str, int]:
        """Return what is set aside with its sizes."""
        return await self._run("listing layers set aside", _list_blobs, self._aside)

    async def purge(self, digest: str) -> None:
        """Remove what is set aside."""
        await self._run(f"removing {digest}", lambda: self._put_aside(digest).unlink(missing_ok=True))

    async def read_cell(self, kind: str, key: str) -> Cell | None:
        """Return a cell, or None."""
        names.check_cell(kind, key)
        return await self._run(f"reading {kind}/{key}", self._cells[kind].read, key)

    async def read_cells(self, kind: str, hints: Mapping[str, Version]) -> Mapping[str, Cell]:
        """Return many cells."""
        for key in hints:
            names.check_cell(kind, key)
        return await self._run(f"reading {kind}", self._cells[kind].read_many, hints)

    async def write_cell(self, kind: str, key: str, content: bytes, *, expected: Version | None) -> Version:
        """Write a cell if it has the expected version."""
        names.check_cell(kind, key)
        return await self._run(f"writing {kind}/{key}", self._cells[kind].write, key, content, expected)

    async def forget_cell(self, kind: str, key: str) -> None:
        """Remove a cell."""
        names.check_cell(kind, key)
        await self._run(f"removing {kind}/{key}", self._cells[kind].forget, key)

    async def cells(self, kind: str) -> Mapping[str, Version]:
        """Return all keys of a kind with their versions."""
        return await self._run(f"listing {kind}", self._cells[kind].all)

    async def sweep(self) -> list[str]:
        """Remove this node's temporary files."""
        return await self._run("removing temporary files", self._own.sweep)

    def _blob(self, digest: str) -> Path:
        return self._blobs / names.hexadecimal(digest)

    def _put_aside(self, digest: str) -> Path:
        return self._aside / names.hexadecimal(digest)

    async def _run(self, what: str, work: Callable[..., _T], *arguments: object) -> _T:
        def body() -> _T:
            with translated(what):
                return work(*arguments)

        return await self._pool.run(body)


def _is_foreign(error: OSError) -> bool:

    return error.errno in (errno.EXDEV, errno.EMLINK, errno.EPERM)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, _FILE)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(path: Path) -> int | None:
    # Opening asks the server of a network file system; a bare stat may be answered from an old cache.
    try:
        descriptor = os.open(path, _FILE)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(descriptor)
        return found.st_size if stat.S_ISREG(found.st_mode) else None
    finally:
        os.close(descriptor)


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except FileNotFoundError:
        return None


def _list_blobs(directory: Path) -> dict[str, int]:
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            digest = names.digest_of(entry.name)
            if digest is not None and entry.is_file(follow_symlinks=False):
                try:
                    found[digest] = entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue
    return found
