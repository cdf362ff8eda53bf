"""Disks and memory images of sandboxes, on the block daemon. Owns the directory of writable layers, and all names.

A disk's own layers lie beside its writable one under names of its own, so that nobody can take them from under it.
"""

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from agentenv.base import aio, log, trees
from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.base.units import MIB, format_bytes
from agentenv.blocks import digests, handover
from agentenv.blocks.base import Disk, FileLayer, FrozenLayer, LayerSource, SealedLayer, Stack
from agentenv.blocks.blockd import BlockDaemonClient, Described, Listed, Writable
from agentenv.blocks.errors import (
    IMAGE_IN_USE,
    BaseRefused,
    BlocksConflict,
    DaemonBroken,
    DiskAbsent,
    DiskDamaged,
    DiskNotWritten,
    DiskSpaceShort,
)
from agentenv.blocks.places import Places
from agentenv.blocks.settings import BlocksSettings

_log = log.get("blocks")
_DISK = "disk-"
_MEMORY = "memory-"
_LAYER_SUFFIX = ".layer"
_LAYERS = range(1, 256)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")
LOSS = "the block daemon's supervisor ended, and every disk with it"


class LayeredStore:
    """Implements `BlockStore`."""

    def __init__(self, client: BlockDaemonClient, places: Places, settings: BlocksSettings) -> None:
        self._client = client
        self._places = places
        self._settings = settings
        # What the daemon has of an earlier life: files that are open are dead, whatever their names show now.
        self._lost: set[str] = set()
        self._endings: dict[SandboxId, asyncio.Future[str]] = {}

    async def forget_earlier_life(self) -> None:
        """Take every disk that is there for lost: the daemon has only just been started."""
        names = [image.name.removeprefix(_DISK) for image in await self._disks()]
        self._lost.update(names)
        if names:
            _log.warning("disks_lost", sandboxes=names, reason=LOSS)

    def lose_all(self) -> None:
        """The daemon has died: tell whoever stands on one of its disks."""
        self._lost.update(self._endings)
        for ending in self._endings.values():
            if not ending.done():
                ending.set_result(LOSS)

    async def wait_lost(self, sandbox_id: SandboxId) -> str:
        """Return when the disk of a sandbox has become useless, and why; never for one that was removed."""
        return await asyncio.shield(self._ending(sandbox_id))

    async def create(self, sandbox_id: SandboxId, base: Stack, *, owner: int, size_bytes: int | None = None) -> Disk:
        """Return a new writable disk over `base`; see `BlockStore.create`.

        Raises `DiskSpaceShort` below the reserve, `BaseRefused` or `DiskDamaged` for a base that cannot be used,
        `DiskNotWritten` when the host's file system refuses.
        """
        if len(base.layers) not in _LAYERS:
            raise BaseRefused(f"a disk stands on 1 to 255 layers, not on {len(base.layers)}")
        if size_bytes is not None and size_bytes < base.size_bytes:
            raise BaseRefused(f"a disk of {size_bytes} bytes is smaller than its base of {base.size_bytes}")
        self._check_space()
        # Whoever removes the disk after a cancellation must find what was begun here finished.
        return await aio.finish(self._create(sandbox_id, base, owner, size_bytes))

    async def _create(self, sandbox_id: SandboxId, base: Stack, owner: int, size_bytes: int | None) -> Disk:
        directory = self._own(sandbox_id)
        known = {layer.path: layer.digest for layer in base.layers if isinstance(layer, FileLayer) and layer.digest}
        try:
            with _written(sandbox_id):
                await asyncio.to_thread(_prepare, directory, known)
            opened = await self._client.open_disk(
                _DISK + sandbox_id, base, Writable(directory / "live", size_bytes), owner=owner
            )
        except AgentEnvError as error:
            with suppress(AgentEnvError):
                await self.remove(sandbox_id)
            if isinstance(error, DiskAbsent):
                raise DiskDamaged(f"a layer under the disk of {sandbox_id} is missing: {error.message}") from error
            raise
        self._lost.discard(sandbox_id)
        self._ending(sandbox_id)
        return Disk(opened.path, opened.size_bytes)

    async def find(self, sandbox_id: SandboxId) -> Disk | None:
        """Return the disk of a sandbox, if it has one that is not lost."""
        if sandbox_id in self._lost:
            return None
        try:
            image = await self._client.stat(_DISK + sandbox_id)
        except DiskAbsent:
            return None
        self._ending(sandbox_id)
        return Disk(image.path, _size(image))

    async def remove(self, sandbox_id: SandboxId) -> None:
        """Delete the disk of a sandbox, if it has one. Whoever still has it open sees errors from now on."""
        await self._client.close(_DISK + sandbox_id, discard=True, force=True)
        with _written(sandbox_id):
            await asyncio.to_thread(trees.remove, self._own(sandbox_id))
        self._lost.discard(sandbox_id)
        self._endings.pop(sandbox_id, None)

    async def collect(self, keep: frozenset[SandboxId]) -> list[str]:
        """Delete what belongs to no sandbox in `keep`; return the names removed. What resists is logged and stays."""
        names = {image.name.removeprefix(_DISK) for image in await self._disks()}
        names.update(entry.name for entry in self._places.writable.iterdir())
        removed = []
        for name in sorted(names - keep):
            try:
                await self.remove(SandboxId(name))
                removed.append(f"disk of {name}")
            except AgentEnvError as error:
                _log.error("leftover_not_removed", disk=name, reason=error.message)
        return removed

    async def stack(self, sandbox_id: SandboxId) -> Stack:
        """Return the sealed layers of a disk, bottom first. Raises `DiskAbsent`."""
        image = await self._client.stat(_DISK + sandbox_id)
        directory = self._own(sandbox_id)
        known = await asyncio.to_thread(digests.read, directory)
        layers: list[LayerSource] = []
        for layer in image.layers:
            if isinstance(layer, FileLayer):
                digest = known.get(layer.path)
                if digest is None and layer.path.parent == directory:
                    # Killed between sealing and noting: the daemon computes it again.
                    digest = (await self._sealed(sandbox_id, layer.path.name.removesuffix(_LAYER_SUFFIX))).digest
                layers.append(replace(layer, digest=digest))
            else:
                layers.append(layer)
        return Stack(tuple(layers), _size(image))

    async def freeze(self, sandbox_id: SandboxId, seal_id: str, into: Path) -> FrozenLayer:
        """Begin to keep what a disk holds at this moment; see `BlockStore.freeze`."""
        if not _NAME.fullmatch(seal_id):
            raise BaseRefused(f"a seal cannot be called '{seal_id[:100]}'")
        directory = self._own(sandbox_id)
        microseconds = await aio.finish(
            self._client.seal(
                _DISK + sandbox_id,
                seal_id,
                sealed=directory / f"{seal_id}{_LAYER_SUFFIX}",
                following=directory / f"live-{seal_id}",
            )
        )
        _log.info("disk_frozen", sandbox_id=sandbox_id, seal_id=seal_id, took_us=microseconds)
        return FrozenLayer(sandbox_id, seal_id, into)

    async def sealed(self, frozen: FrozenLayer) -> SealedLayer:
        """Return when a frozen layer is durable at its path; see `BlockStore.sealed`."""
        layer = await self._sealed(frozen.sandbox_id, frozen.seal_id)
        with _written(frozen.sandbox_id):
            await aio.finish(asyncio.to_thread(handover.give, layer.path, frozen.path))
        return replace(layer, path=frozen.path)

    async def _sealed(self, sandbox_id: SandboxId, seal_id: str) -> SealedLayer:
        answer = await self._client.sealed(_DISK + sandbox_id, seal_id)
        if answer.digest is None:
            raise DaemonBroken(f"the block daemon sealed {seal_id} of {sandbox_id} without a digest")
        directory = self._own(sandbox_id)
        with _written(sandbox_id):
            known = digests.read(directory)
            digests.write(directory, known | {answer.path: answer.digest})
        return SealedLayer(answer.path, answer.size_bytes, answer.digest)

    async def open_memory(self, name: str, stack: Stack) -> Path:
        """Return a read-only file with the content of `stack`; see `BlockStore.open_memory`."""
        if not _NAME.fullmatch(name):
            raise BaseRefused(f"a memory image cannot be called '{name[:100]}'")
        return (await self._client.open_memory(_MEMORY + name, stack)).path

    async def close_memory(self, name: str) -> bool:
        """Close a memory image; False when a machine still has it open, and it stays then."""
        try:
            await self._client.close(_MEMORY + name, discard=False, force=False)
        except BlocksConflict as error:
            if error.code != IMAGE_IN_USE:
                raise
            return False
        return True

    async def memory_images(self) -> list[str]:
        """Return the names of the memory images that are open."""
        names = (image.name for image in await self._client.images())
        return [name.removeprefix(_MEMORY) for name in names if name.startswith(_MEMORY)]

    async def _disks(self) -> list[Listed]:
        return [image for image in await self._client.images() if image.name.startswith(_DISK)]

    def _own(self, sandbox_id: SandboxId) -> Path:
        return self._places.writable / sandbox_id

    def _ending(self, sandbox_id: SandboxId) -> "asyncio.Future[str]":
        if sandbox_id not in self._endings:
            self._endings[sandbox_id] = asyncio.get_running_loop().create_future()
        return self._endings[sandbox_id]

    def _check_space(self) -> None:
        status = os.statvfs(self._places.writable)
        free, reserve = status.f_bavail * status.f_frsize, self._settings.reserve_mib * MIB
        if free < reserve:
            raise DiskSpaceShort(
                f"only {format_bytes(free)} are free in {self._places.writable}, and {format_bytes(reserve)} are kept "
                "in reserve (blocks.reserve_mib)"
            )


def _prepare(directory: Path, known: dict[Path, str]) -> None:
    trees.remove(directory)
    directory.mkdir(mode=0o700)
    digests.write(directory, known)


def _size(image: Described) -> int:
    if image.size_bytes is None:
        raise DaemonBroken(f"the block daemon does not say how large {image.name} is")
    return image.size_bytes


@contextmanager
def _written(sandbox_id: SandboxId) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        path = error.filename2 or error.filename
        reason = f"{path}: {error.strerror}" if path else error.strerror
        raise DiskNotWritten(f"a file of the disk of {sandbox_id} could not be written: {reason}") from error
