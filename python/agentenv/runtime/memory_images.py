"""The memory images that machines map: opened for the first, shared by all, closed when unused for a while."""

from collections import Counter
from pathlib import Path

from agentenv.base import log, metrics
from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.blocks.base import BlockStore, Stack

_log = log.get("runtime")
_open = metrics.gauge("aenv_runtime_memory_images", "Memory images that are open.")


class MemoryImages:
    """Counts who uses which image. An unused one stays open for `idle_seconds`: its pages are warm."""

    def __init__(self, blocks: BlockStore, clock: Clock, *, idle_seconds: float) -> None:
        self._blocks = blocks
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._users: Counter[str] = Counter()
        self._unused_since: dict[str, float] = {}

    async def open(self, name: str, stack: Stack) -> Path:
        """Return the image's file, for one user more."""
        self.adopt(name)
        try:
            return await self._blocks.open_memory(name, stack)
        except BaseException:
            await self.release(name)
            raise

    def adopt(self, name: str) -> None:
        """Count a user whose machine has the image open already."""
        self._users[name] += 1
        self._unused_since.pop(name, None)

    async def release(self, name: str) -> None:
        """Count one user less."""
        self._users[name] -= 1
        if self._users[name] <= 0:
            del self._users[name]
            self._unused_since[name] = self._clock.monotonic()

    async def close_unused(self) -> None:
        """Close the images that nobody has used for long enough, also those of an earlier process."""
        images = await self._blocks.memory_images()
        _open.set(len(images))
        now = self._clock.monotonic()
        for name in images:
            since = self._unused_since.setdefault(name, now) if name not in self._users else None
            if since is None or now - since < self._idle_seconds:
                continue
            try:
                if await self._blocks.close_memory(name):
                    self._unused_since.pop(name, None)
            except AgentEnvError as error:
                _log.warning("memory_image_not_closed", name=name, reason=error.message)
        for gone in self._unused_since.keys() - set(images):
            del self._unused_since[gone]
