"""Copy-on-write disks as qcow2 files: `<root>/<sandbox_id>/root.qcow2`. Owns everything below its root.

The files are scratch: they are worth nothing after the host went down, so nothing here is made durable.
"""

import asyncio
import os
from pathlib import Path

from agentenv.base import aio, log, trees
from agentenv.base.ids import SandboxId
from agentenv.blocks import qcow2
from agentenv.blocks.base import Disk, DiskFormat
from agentenv.blocks.errors import BaseRefused, DiskDamaged, DiskNotWritten

_log = log.get("blocks")
_NAME = "root.qcow2"
_SECTOR_BYTES = 512
_BACKING_NAME_BYTES = 1023


class OverlayStore:
    """Implements `PlainDisks` with one qcow2 overlay per sandbox."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def create(self, sandbox_id: SandboxId, base: Path, *, owner: int) -> Disk:
        """Return a new writable disk over the raw image `base`, readable and writable by user id `owner`.

        Raises `BaseRefused` for a base that cannot be used, `DiskNotWritten` when the host's file system refuses.
        """
        size_bytes = _usable_size(base)
        path = self._path(sandbox_id)
        try:
            # A thread goes on when its caller is cancelled; whoever then removes the disk must find it finished.
            await aio.finish(asyncio.to_thread(_write, path, base.absolute(), size_bytes, owner))
        except OSError as error:
            raise DiskNotWritten(f"the disk of sandbox {sandbox_id} could not be made: {error.strerror}") from error
        return Disk(path, size_bytes, DiskFormat.QCOW2)

    async def find(self, sandbox_id: SandboxId) -> Disk | None:
        """Return the disk of a sandbox, if it has one. Raises `DiskDamaged` for a file that is no disk of ours."""
        path = self._path(sandbox_id)
        try:
            with path.open("rb") as file:
                size_bytes = qcow2.read_size_bytes(file.read(_SECTOR_BYTES))
        except FileNotFoundError:
            return None
        if size_bytes is None:
            raise DiskDamaged(f"the disk of sandbox {sandbox_id} is damaged; the sandbox can only be deleted")
        return Disk(path, size_bytes, DiskFormat.QCOW2)

    async def remove(self, sandbox_id: SandboxId) -> None:
        """Delete the disk of a sandbox, if it has one."""
        await self._remove_directory(self._path(sandbox_id).parent)

    async def collect(self, keep: frozenset[SandboxId]) -> list[str]:
        """Delete what belongs to no sandbox in `keep`; return the names removed. What resists is logged and stays."""
        names = sorted(entry.name for entry in self._root.iterdir()) if self._root.is_dir() else []
        removed = []
        for name in names:
            if name in keep:
                continue
            try:
                await self._remove_directory(self._root / name)
                removed.append(f"disk of {name}")
            except DiskNotWritten as error:
                _log.error("leftover_not_removed", reason=error.message)
        return removed

    def _path(self, sandbox_id: SandboxId) -> Path:
        return self._root / sandbox_id / _NAME

    async def _remove_directory(self, directory: Path) -> None:
        try:
            await asyncio.to_thread(trees.remove, directory)
        except OSError as error:
            raise DiskNotWritten(f"the disk in {directory} could not be removed: {error.strerror}") from error


def _usable_size(base: Path) -> int:
    try:
        size_bytes = base.stat().st_size
    except OSError as error:
        raise BaseRefused(f"the base image {base} cannot be read: {error.strerror}") from error
    if not base.is_file() or size_bytes % _SECTOR_BYTES or not 0 < size_bytes <= qcow2.MAXIMUM_BYTES:
        raise BaseRefused(f"{base} is no raw disk image: it must be a file of whole sectors, not {size_bytes} bytes")
    if len(os.fsencode(base.absolute())) > _BACKING_NAME_BYTES:
        raise BaseRefused(f"the path of the base image is longer than {_BACKING_NAME_BYTES} bytes: {base}")
    return size_bytes


def _write(path: Path, base: Path, size_bytes: int, owner: int) -> None:
    # The monitor must get through to its file, but cannot list what else there is.
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o711)
    temporary = path.with_name(f".{path.name}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, qcow2.FILE_BYTES)
        for piece in qcow2.empty_overlay(size_bytes, os.fsencode(base)):
            os.pwrite(descriptor, piece.content, piece.offset)
        os.fchown(descriptor, owner, owner)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
