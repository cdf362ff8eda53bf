"""A process in a sandbox as its starter sees it: one sequence of events, taken up again when the connection breaks."""

import contextlib
from collections.abc import AsyncIterator

from agentenv.base.clock import Clock, SystemClock
from agentenv.base.errors import AgentEnvError
from agentenv.client.base import Command, Ended, Output, ProcessEvent, Reconnected, Signal, TerminalSize
from agentenv.client.daemon import Daemon
from agentenv.client.errors import (
    ProcessNotFound,
    RequestTimedOut,
    ServerFailed,
    ServerUnreachable,
    StreamLost,
)
from agentenv.client.events import EventStream

_RECONNECT_DELAYS_SECONDS = (0.1, 1.0, 3.0, 5.0)
_PASSING_FAILURES = (RequestTimedOut, ServerFailed, ServerUnreachable, StreamLost)


class RunningProcess:
    """A process that was started. Leaving it does not end it: send a signal for that."""

    def __init__(self, daemon: Daemon, command: Command, pid: int, stream: EventStream, clock: Clock) -> None:
        self.pid = pid
        self._daemon = daemon
        self._command = command
        self._stream = stream
        self._clock = clock
        self._failures = 0
        self._reconnected = contextlib.AsyncExitStack()

    async def follow(self) -> AsyncIterator[ProcessEvent]:
        """Yield the events of the process; the last one is `Ended`.

        A broken stream is taken up again by process number, never by starting anew, and `Reconnected` marks the
        place. Raises `SandboxGone` when there is no sandbox any more, `StreamLost` when it cannot be reached or
        the process ended unseen.
        """
        while True:
            try:
                async for event in self._stream.read_events():
                    if isinstance(event, Output):
                        self._failures = 0
                    yield event
                    if isinstance(event, Ended):
                        return
            except StreamLost as lost:
                self._stream = await self._reconnect(lost)
                yield Reconnected()

    async def send_input(self, content: bytes) -> None:
        """Write to the process; returns when the daemon took it. Raises `ProcessNotFound` after its end."""
        await self._daemon.send_input(self.pid, content, to_terminal=self._command.terminal is not None)

    async def close_input(self) -> None:
        """Let the process read the end of its input."""
        await self._daemon.close_input(self.pid)

    async def send_signal(self, signal: Signal) -> None:
        """Send a signal to the process alone; its children do not get it."""
        await self._daemon.send_signal(self.pid, signal)

    async def send_group_signal(self, name: str) -> bool:
        """Send the signal `name` (`INT`) to the process group, as a terminal does; False when that is not possible.

        The contract's own signals reach one process only, so the sandbox's shell sends this one.
        """
        # No "--" before the number: dash and busybox do not know it.
        killer = Command("/bin/sh", ("-c", f"kill -{name} -{self.pid}"), user=self._command.user)
        try:
            async with self._daemon.open_start(killer) as stream:
                await stream.read_start()
                return any([event async for event in stream.read_events() if event == Ended(0)])
        except AgentEnvError:
            return False

    async def resize(self, size: TerminalSize) -> None:
        """Tell the process that its terminal has another size now."""
        await self._daemon.resize(self.pid, size)

    async def release(self) -> None:
        """Close the connection; the process goes on."""
        await self._reconnected.aclose()

    async def _reconnect(self, lost: StreamLost) -> EventStream:
        await self._reconnected.aclose()
        while self._failures < len(_RECONNECT_DELAYS_SECONDS):
            await self._clock.sleep(_RECONNECT_DELAYS_SECONDS[self._failures])
            self._failures += 1
            try:
                stream = await self._reconnected.enter_async_context(self._daemon.open_connect(self.pid))
                await stream.read_start()
            except ProcessNotFound as error:
                raise StreamLost(
                    "the connection broke, and the command ended before it came back: its exit code is unknown"
                ) from error
            except _PASSING_FAILURES:
                await self._reconnected.aclose()
            else:
                return stream
        raise lost


@contextlib.asynccontextmanager
async def start_process(daemon: Daemon, command: Command, clock: Clock | None = None) -> AsyncIterator[RunningProcess]:
    """Start a process and give it once it runs. Raises `RequestRefused` when it cannot be started."""
    async with daemon.open_start(command) as stream:
        pid = await stream.read_start()
        process = RunningProcess(daemon, command, pid, stream, clock or SystemClock())
        try:
            yield process
        finally:
            await process.release()
