"""Local signals that mean "end the remote command": caught, counted, and turned into signals over there."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator

from agentenv.base.errors import AgentEnvError
from agentenv.cli import exit_codes
from agentenv.cli.errors import Interrupted
from agentenv.client.base import Signal
from agentenv.client.process import RunningProcess

_GRACE_SECONDS = 3
_LAST_WORDS_SECONDS = 2
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CaughtSignals:
    """The signals that came since the watch began."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._queue: asyncio.Queue[int] = asyncio.Queue()

    def add(self, number: int) -> None:
        """Note a signal; called by the loop."""
        self.first = self.first or number
        self._queue.put_nowait(number)

    async def next(self) -> int:
        """Wait for a signal that was not given out yet."""
        return await self._queue.get()


@contextlib.contextmanager
def caught_signals() -> Iterator[CaughtSignals]:
    """Catch the signals that would end this process, for as long as the context lasts."""
    loop = asyncio.get_running_loop()
    caught = CaughtSignals()
    for number in _NUMBERS:
        loop.add_signal_handler(number, caught.add, number)
    try:
        yield caught
    finally:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)


async def end_on_signal(process: RunningProcess, caught: CaughtSignals) -> None:
    """Wait for a signal and pass it on; a second one, or a process that takes too long, kills.

    Raises `Interrupted` when even that did not end the process.
    """
    number = await caught.next()
    if not await process.send_group_signal("INT" if number == signal.SIGINT else "TERM"):
        with contextlib.suppress(AgentEnvError):
            await process.send_signal(Signal.TERMINATE)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_SECONDS):
            await caught.next()
    await kill(process)
    # The end of the process ends the verb; this is for one that nothing reaches any more.
    await asyncio.sleep(_LAST_WORDS_SECONDS)
    raise Interrupted(exit_codes.of_signal(number))


async def kill(process: RunningProcess) -> None:
    """Kill a process and its group as well as it can be done now; bounded, and silent about failures."""
    with contextlib.suppress(AgentEnvError, TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_SECONDS):
            await process.send_group_signal("KILL")
            await process.send_signal(Signal.KILL)
