"""What of a capture follows the frozen moment: the memory becomes a durable layer, or nothing is left of it."""

from collections.abc import Callable

import agentenv_core as core
from agentenv.base import aio, log
from agentenv.base.errors import Bug
from agentenv.vmm.base import CapturedMemory, CaptureTarget
from agentenv.vmm.memory import MemoryReader
from agentenv.vmm.qemu.lineage import LineageFile
from agentenv.vmm.qemu.taking import TakenMemory

_log = log.get("vmm")


class QemuCapture:
    """Implements `vmm.base.MemoryCapture`."""

    def __init__(
        self,
        target: CaptureTarget,
        taken: TakenMemory,
        *,
        record: LineageFile,
        reader: MemoryReader,
        is_tracked: bool,
        frozen_ms: float,
        when_done: Callable[[], None],
    ) -> None:
        self._target = target
        self._taken = taken
        self._record = record
        self._reader = reader
        self._is_tracked = is_tracked
        self._frozen_ms = frozen_ms
        self._when_done = when_done
        self._is_done = False

    async def finish(self) -> CapturedMemory:
        """Return when memory and device state are durable."""
        if self._is_done:
            raise Bug(f"the capture to {self._target.memory_layer} was finished or abandoned before")
        try:
            layer, digest = await self._write()
        except BaseException:
            await aio.finish(self.abandon())
            raise
        self._remember()
        self._end()
        return CapturedMemory(
            memory_layer=self._target.memory_layer,
            size_bytes=layer.file_bytes,
            digest=digest,
            data_bytes=layer.data_bytes,
            frozen_ms=self._frozen_ms,
            facts=self._record.lineage.facts,
        )

    async def abandon(self) -> None:
        """Give the capture up and remove its files."""
        if not self._is_done:
            await aio.finish(discard(self._target, self._taken))
            self._end()

    async def _write(self) -> tuple[core.MemoryLayer, str]:
        layer = await self._taken.complete(self._reader)
        await aio.finish(self._taken.release())
        await self._reader.make_durable(self._target.device_state)
        return layer, await self._reader.make_durable(self._target.memory_layer, layer.digest)

    def _remember(self) -> None:
        try:
            self._record.advance(self._taken.new.layer_id, is_tracked=self._is_tracked)
        except OSError as error:
            # An older record makes the next capture compare, which is slower and right.
            _log.warning("lineage_not_saved", layer=str(self._target.memory_layer), reason=error.strerror)

    def _end(self) -> None:
        self._is_done = True
        self._when_done()


async def discard(target: CaptureTarget, taken: TakenMemory | None) -> None:
    """Remove what a capture has left. The files are ours: they did not exist before it."""
    if taken is not None:
        await taken.release()
        target.memory_layer.unlink(missing_ok=True)
    target.device_state.unlink(missing_ok=True)
