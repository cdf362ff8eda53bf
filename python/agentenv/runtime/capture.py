"""Takes the state of a live sandbox into files. The guest stands still only while its state is fixed.

Invariant: whatever fails, the machine runs on and the guest's file system is not left frozen.
"""

import asyncio
import contextlib
from pathlib import Path

from agentenv.base import aio, log
from agentenv.base.errors import AgentEnvError
from agentenv.blocks.base import BlockStore, FrozenLayer, SealedLayer
from agentenv.guest.client import GuestClient
from agentenv.guest.errors import GuestRefused, GuestUnreachable
from agentenv.runtime.base import Captured, CapturePlan
from agentenv.runtime.errors import GuestUnresponsive
from agentenv.runtime.live import Live
from agentenv.vmm.base import CapturedMemory, CaptureTarget, MemoryCapture

_log = log.get("runtime")
# Whoever freezes a guest and dies finds it thawed after this long.
_HOLD_SECONDS = 20.0
_SEAL_SECONDS = 60.0
_DISK, _MEMORY, _DEVICES = "disk.layer", "memory.layer", "devices.state"


class Capturer:
    """Captures with or without memory. Without, the guest's file system is what has to be whole, so it is frozen."""

    def __init__(self, blocks: BlockStore, guest: GuestClient, *, sync_seconds: float) -> None:
        self._blocks = blocks
        self._guest = guest
        self._sync_seconds = sync_seconds

    async def capture(self, live: Live, plan: CapturePlan) -> Captured:
        """Return when the capture is whole and durable.

        The sandbox runs on, unless `plan.stay_stopped`; after an error it always runs on, and the files in
        `plan.into` are the caller's to remove. What was sealed of its disk by then stays a part of its disk.

        Raises `GuestUnresponsive` before anything has happened, `CaptureFailed`, or what a part raised.
        """
        if plan.with_memory:
            return await self._with_memory(live, plan)
        return await self._without_memory(live, plan)

    async def go_on(self, live: Live, token: str) -> None:
        """Let the machine and its guest's file system go on."""
        await live.machine.resume()
        with contextlib.suppress(GuestUnreachable, GuestRefused):  # its daemon thaws by itself, after a while
            await self._guest.thaw_disk(live.address, token)

    async def _with_memory(self, live: Live, plan: CapturePlan) -> Captured:
        answered = await self._write_out(live, plan)
        frozen: list[FrozenLayer] = []

        async def freeze_disk() -> None:
            frozen.append(await self._freeze(live, plan))

        target = CaptureTarget(plan.into / _DEVICES, plan.into / _MEMORY, plan.below)
        try:
            taking = await live.machine.capture(target, while_stopped=freeze_disk, stay_stopped=plan.stay_stopped)
        except BaseException:
            await aio.finish(self._outlast(frozen))
            raise
        try:
            memory, layer = await self._finish(taking, frozen[0])
        except BaseException:
            await aio.finish(self._undo(live, plan, taking, frozen))
            raise
        return await self._captured(live, layer, memory, target.device_state, answered=answered)

    async def _without_memory(self, live: Live, plan: CapturePlan) -> Captured:
        frozen: list[FrozenLayer] = []
        try:
            await self._freeze_guest(live, plan)
            if plan.stay_stopped:
                await live.machine.pause()
            frozen.append(await self._freeze(live, plan))
            if not plan.stay_stopped:
                await self._guest.thaw_disk(live.address, plan.token)
            layer = await self._blocks.sealed(frozen[0])
        except (GuestUnreachable, GuestRefused) as error:
            await aio.finish(self._undo(live, plan, None, frozen))
            raise GuestUnresponsive(
                f"the daemon in the guest of sandbox {live.sandbox_id} does not answer, so its disk alone cannot be "
                f"captured: {error.message}"
            ) from error
        except BaseException:
            await aio.finish(self._undo(live, plan, None, frozen))
            raise
        return await self._captured(live, layer, None, None, answered=True)

    async def _captured(
        self,
        live: Live,
        layer: SealedLayer,
        memory: CapturedMemory | None,
        device_state: Path | None,
        *,
        answered: bool,
    ) -> Captured:
        stack = await self._blocks.stack(live.sandbox_id)
        return Captured(layer=layer, stack=stack, memory=memory, device_state=device_state, guest_answered=answered)

    async def _finish(self, taking: MemoryCapture, frozen: FrozenLayer) -> tuple[CapturedMemory, SealedLayer]:
        return await aio.together(taking.finish(), self._blocks.sealed(frozen))

    async def _freeze(self, live: Live, plan: CapturePlan) -> FrozenLayer:
        return await self._blocks.freeze(live.sandbox_id, plan.snapshot_id, plan.into / _DISK)

    async def _write_out(self, live: Live, plan: CapturePlan) -> bool:
        """Let the guest write out its file system, so that the disk alone is worth something too.

        Thawed again before the machine stops: the memory that is captured must not hold a frozen file system.
        """
        try:
            await self._freeze_guest(live, plan)
            await self._guest.thaw_disk(live.address, plan.token)
        except (GuestUnreachable, GuestRefused) as error:
            if plan.needs_guest:
                raise GuestUnresponsive(
                    f"the daemon in the guest of sandbox {live.sandbox_id} does not answer: {error.message}"
                ) from error
            _log.warning("guest_not_synced", sandbox_id=live.sandbox_id, reason=error.message)
            return False
        return True

    async def _freeze_guest(self, live: Live, plan: CapturePlan) -> None:
        await self._guest.freeze_disk(
            live.address, plan.token, hold_seconds=_HOLD_SECONDS, timeout_seconds=self._sync_seconds
        )

    async def _undo(
        self, live: Live, plan: CapturePlan, taking: MemoryCapture | None, frozen: list[FrozenLayer]
    ) -> None:
        if taking is not None:
            with contextlib.suppress(AgentEnvError):
                await taking.abandon()
        if plan.stay_stopped or not plan.with_memory:
            try:
                await self.go_on(live, plan.token)
            except AgentEnvError as error:
                # The monitor is gone or deaf; whoever watches the machine acts on that.
                _log.error("sandbox_not_going_on", sandbox_id=live.sandbox_id, reason=error.message)
        await self._outlast(frozen)

    async def _outlast(self, frozen: list[FrozenLayer]) -> None:
        """Wait for a seal under way: the caller is about to remove the directory it writes into."""
        for layer in frozen:
            with contextlib.suppress(AgentEnvError, TimeoutError):
                async with asyncio.timeout(_SEAL_SECONDS):
                    await self._blocks.sealed(layer)
