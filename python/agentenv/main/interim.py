"""Stands where the block daemon will be: sandboxes run as before, and cannot be captured."""

from pathlib import Path
from typing import NoReturn

from agentenv.base.ids import SandboxId
from agentenv.blocks.base import Disk, FileLayer, FrozenLayer, SealedLayer, Stack
from agentenv.blocks.errors import BaseRefused, DaemonUnprepared
from agentenv.blocks.overlay import OverlayStore


class PlainStore:
    """Implements `BlockStore` for disks over one raw file each, which cannot be frozen."""

    def __init__(self, disks: OverlayStore) -> None:
        self._disks = disks
        self.find, self.remove, self.collect = disks.find, disks.remove, disks.collect

    async def create(self, sandbox_id: SandboxId, base: Stack, *, owner: int, size_bytes: int | None = None) -> Disk:
        """Return a new disk over a raw image."""
        layer = base.layers[0]
        if len(base.layers) != 1 or not isinstance(layer, FileLayer) or size_bytes is not None:
            raise BaseRefused("a plain disk stands on one raw file")
        return await self._disks.create(sandbox_id, layer.path, owner=owner)

    async def stack(self, sandbox_id: SandboxId) -> Stack:
        """Raise: a plain disk has no layers."""
        _refuse()

    async def freeze(self, sandbox_id: SandboxId, seal_id: str, into: Path) -> FrozenLayer:
        """Raise: a plain disk has no layers."""
        _refuse()

    async def sealed(self, frozen: FrozenLayer) -> SealedLayer:
        """Raise: a plain disk has no layers."""
        _refuse()

    async def open_memory(self, name: str, stack: Stack) -> Path:
        """Raise: there is nothing to restore."""
        _refuse()

    async def close_memory(self, name: str) -> bool:
        """Return True: no image is open."""
        return True

    async def memory_images(self) -> list[str]:
        """Return no names."""
        return []


def _refuse() -> NoReturn:
    raise DaemonUnprepared("the disks of this server cannot be captured yet")
