"""What happens to sandboxes without anybody asking: their time is over, their machine ends, the server stops."""

import asyncio
from contextlib import suppress

from agentenv.base import aio, log
from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.orchestrator.base import ROUTABLE_STATES, OnTimeout
from agentenv.orchestrator.errors import SandboxNotFound, VerbRefused
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.machine import Verb
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.turns import Turns
from agentenv.orchestrator.verbs.kill import kill
from agentenv.orchestrator.verbs.lapse import lapse
from agentenv.orchestrator.verbs.pause import PauseRequest, pause
from agentenv.runtime.live import Live
from agentenv.vmm.base import EndCause

_log = log.get("orchestrator")
# A guest that ends its own machine means it. Where the machine ended under it, its checkpoint brings it back.
_MEANT = frozenset({EndCause.GUEST_SHUTDOWN.value, EndCause.GUEST_REBOOT.value, EndCause.KILLED_BY_US.value})


class Endings:
    """Pauses what has expired, ends what has no machine any more, and leaves a node in order."""

    def __init__(self, fleet: Fleet, turns: Turns) -> None:
        self._fleet = fleet
        self._turns = turns

    async def end(self, sandbox_id: SandboxId, cause: str) -> None:
        """End a sandbox for good. Raises `SandboxNotFound`."""
        await self._turns.take(sandbox_id, Verb.KILL, lambda turn: kill(turn, cause))

    async def expire(self, sandbox_id: SandboxId) -> None:
        """Do with a sandbox whose time is over what its creator wanted; what fails is tried again later."""
        record = self._fleet.book.find(sandbox_id)
        if record is None:
            return
        with suppress(SandboxNotFound):  # somebody else was faster
            if record.sandbox.on_timeout is OnTimeout.PAUSE:
                await self._pause_expired(record)
            else:
                # A capture under way is finished first: it is somebody's snapshot.
                await self._turns.idle(sandbox_id)
                if self._has_expired(sandbox_id):
                    await self.end(sandbox_id, "timed_out")

    async def _pause_expired(self, record: SandboxRecord) -> None:
        request = PauseRequest(with_memory=record.sandbox.auto_pause_memory)
        try:
            await self._turns.take(
                record.id,
                Verb.PAUSE,
                lambda turn: pause(turn, request),
                words=request.words,
                only_if=lambda seen: self._has_expired(seen.id),
            )
        except VerbRefused:
            return  # it is paused already, or was resumed meanwhile with a new deadline
        except AgentEnvError as error:
            _log.error("expired_sandbox_not_paused", sandbox_id=record.id, reason=error.message)

    def _has_expired(self, sandbox_id: SandboxId) -> bool:
        record = self._fleet.book.find(sandbox_id)
        return record is not None and record.sandbox.ends_at <= self._fleet.clock.now()

    def watch(self, live: Live) -> None:
        """Follow a machine to its end."""
        self._fleet.supervisor.start(f"watch:{live.sandbox_id}", self._follow(live))

    async def _follow(self, live: Live) -> None:
        end = await live.wait_ended()
        sandbox_id = live.sandbox_id
        # A verb under way has the first word: the end may be its doing, or what it captured may outlive the machine.
        await self._turns.idle(sandbox_id)
        if self._fleet.live.get(sandbox_id) is not live:
            return
        _log.warning("machine_ended", sandbox_id=sandbox_id, cause=end.cause, detail=end.detail)
        with suppress(SandboxNotFound):
            if self._fleet.book.get(sandbox_id).checkpoint is None or end.cause in _MEANT:
                await self.end(sandbox_id, end.cause)
            else:
                await self._turns.take(sandbox_id, Verb.LAPSE, lambda turn: lapse(turn, end.cause))

    async def pause_all(self) -> None:
        """Pause whatever runs, side by side and within a deadline; what cannot be paused runs on."""
        fleet = self._fleet
        running = [record for record in fleet.book.all() if record.state in ROUTABLE_STATES]
        try:
            async with asyncio.timeout(fleet.settings.pause_at_stop_seconds):
                failed = await aio.for_each(running, self._pause_at_stop, at_once=fleet.settings.pauses_at_stop)
        except TimeoutError:
            _log.error("not_all_paused_in_time", seconds=fleet.settings.pause_at_stop_seconds)
            return
        for record, error in failed:
            _log.error("sandbox_not_paused", sandbox_id=record.id, reason=str(error))

    async def _pause_at_stop(self, record: SandboxRecord) -> None:
        request = PauseRequest(with_memory=True)
        with suppress(SandboxNotFound, VerbRefused):  # gone or paused by now
            await self._turns.take(record.id, Verb.PAUSE, lambda turn: pause(turn, request), words=request.words)

    async def leave_running(self) -> frozenset[int]:
        """Leave what runs to the next process, and return the network slots of it."""
        fleet = self._fleet
        for record in fleet.book.all():
            fleet.deadlines.clear(record.id)
        # Taken out first, so that nobody who notices the end of a machine now takes it for a sandbox of ours.
        detached, fleet.live = list(fleet.live.values()), {}
        for live in detached:
            await live.detach()
            _log.info("sandbox_left_running", sandbox_id=live.sandbox_id)
        return frozenset(live.slot.index for live in detached)
