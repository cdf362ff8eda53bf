"""A running QEMU machine: its control line, its console, and the moment and cause of its end."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentenv.base import aio, log, metrics
from agentenv.base.errors import Bug
from agentenv.base.process import reap
from agentenv.vmm.base import CaptureTarget, MachineEnd, MachineHandle, MemoryCapture
from agentenv.vmm.console import ConsoleLog
from agentenv.vmm.errors import CaptureFailed
from agentenv.vmm.qemu import directory
from agentenv.vmm.qemu.capture import Capturer
from agentenv.vmm.qemu.console_socket import ConsoleSocket
from agentenv.vmm.qemu.ending import EndFacts, decide
from agentenv.vmm.qemu.error_pipe import ErrorPipe
from agentenv.vmm.qemu.processes import end_all_of
from agentenv.vmm.qmp import QmpClient, QmpEvent

_log = log.get("vmm")
_ends = metrics.counter("aenv_vmm_machine_ends_total", "Machines that ended, by cause.", ("cause",))
_DRAIN_SECONDS = 2.0
_EVIDENCE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Lines:
    """Our ends of everything that leads to a monitor."""

    control: QmpClient
    console: ConsoleLog
    console_socket: ConsoleSocket
    errors: ErrorPipe

    async def close(self) -> None:
        """Let go of all; the monitor does not mind."""
        await self.control.close()
        self.console_socket.close()
        self.console.close()
        self.errors.close()


class QemuMachine:
    """Implements `vmm.base.Machine`. One supervised task per machine does all the listening.

    `capturer` is None when too little is known of the machine to capture it.
    """

    def __init__(
        self, handle: MachineHandle, lines: Lines, supervisor: aio.Supervisor, capturer: Capturer | None
    ) -> None:
        self._handle = handle
        self._lines = lines
        self._capturer = capturer
        self._ended: asyncio.Future[MachineEnd] = asyncio.get_running_loop().create_future()
        self._shutdown_reason: str | None = None
        self._was_killed_by_us = False
        self._watch = supervisor.start(f"machine:{handle.directory.name}", self._watch_until_end())

    @property
    def handle(self) -> MachineHandle:
        """What to write down to adopt this machine later."""
        return self._handle

    @property
    def ended(self) -> asyncio.Future[MachineEnd]:
        """Resolves at once when the machine ends, whoever ended it."""
        return self._ended

    async def pause(self) -> None:
        """Stop the virtual CPUs."""
        await self._lines.control.execute("stop")

    async def resume(self) -> None:
        """Let the virtual CPUs run again."""
        await self._lines.control.execute("cont")

    async def capture(
        self, target: CaptureTarget, *, while_stopped: Callable[[], Awaitable[None]], stay_stopped: bool = False
    ) -> MemoryCapture:
        """Take the state of the machine at one moment."""
        if self._capturer is None:
            raise CaptureFailed(f"the record of the machine in {self._handle.directory} is lost or damaged")
        return await self._capturer.capture(target, while_stopped=while_stopped, stay_stopped=stay_stopped)

    async def kill(self) -> MachineEnd:
        """End the machine and wait until its process is gone."""
        if not self._ended.done():
            if self._watch.done():
                raise Bug(f"the machine in {self._handle.directory} was let go of before")
            self._was_killed_by_us = self._was_killed_by_us or self._shutdown_reason is None
            self._handle.process.kill()
        return await asyncio.shield(self._ended)

    async def detach(self) -> None:
        """Let go of the machine without ending it."""
        self._watch.cancel()
        await asyncio.wait((self._watch,))
        await self._lines.close()  # a task that is cancelled before its first step closes nothing

    def console_tail(self, limit_bytes: int = 8192) -> str:
        """Return the end of what the guest wrote to its console."""
        return self._lines.console.tail(limit_bytes)

    async def _watch_until_end(self) -> None:
        try:
            wait_status = await self._listen_until_end()
            end = decide(self._gather(wait_status))
        finally:
            await self._lines.close()  # also when we are only letting go
        # Of a machine without a record nobody knows.
        if self._capturer is None or self._capturer.makes_copies:
            await asyncio.to_thread(end_all_of, directory.owner_of(self._handle.directory))
        self._ended.set_result(end)
        directory.remove_sockets(self._handle.directory)
        _ends.labels(cause=end.cause.value).inc()
        _log.info("machine_ended", machine=self._handle.directory.name, cause=end.cause.value, detail=end.detail)

    async def _listen_until_end(self) -> int | None:
        pid = self._handle.process.pid
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._lines.control.listen(self._note))
            copying = group.create_task(self._lines.console_socket.serve(pid))
            await self._handle.process.wait_ended()
            wait_status = reap(pid)
            copying.cancel()
            # The last word of a dead monitor is in the socket already, in front of the end of the connection.
            await asyncio.wait((listening,), timeout=_DRAIN_SECONDS)
            listening.cancel()
        self._lines.console_socket.drain_nowait(pid)
        return wait_status

    def _gather(self, wait_status: int | None) -> EndFacts:
        return EndFacts(
            shutdown_reason=self._shutdown_reason,
            was_killed_by_us=self._was_killed_by_us,
            wait_status=wait_status,
            console=self.console_tail(_EVIDENCE_BYTES),
            errors=self._lines.errors.text(),
        )

    def _note(self, event: QmpEvent) -> None:
        reason = event.facts.get("reason")
        if event.name == "SHUTDOWN" and isinstance(reason, str):
            self._shutdown_reason = reason
