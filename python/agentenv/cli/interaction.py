"""Shows a remote terminal in the user's own until its shell, its sandbox or the user ends it."""

import contextlib
import os
from collections.abc import AsyncIterator

from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.cli import exit_codes
from agentenv.cli.beside import beside
from agentenv.cli.command_line import Invocation, interactive_shells
from agentenv.cli.errors import Interrupted
from agentenv.cli.escape import EscapeFilter
from agentenv.cli.execution import keep_alive, start_first
from agentenv.cli.interruption import CaughtSignals, caught_signals, kill
from agentenv.cli.server import Server
from agentenv.cli.terminal import Terminal, raw_terminal
from agentenv.client.base import Command, Ended, Output, Reconnected
from agentenv.client.errors import InputClosed, ProcessNotFound
from agentenv.client.process import RunningProcess

_ENVIRONMENT = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


class _Left(Exception):
    """The user typed the way out."""


async def interact(server: Server, sandbox_id: SandboxId, user: str | None, *, stdin: int, stdout: int) -> int:
    """Open a shell in the sandbox, show it, and return its exit code."""
    sandbox = await server.api.connect(sandbox_id)
    environment = {**_ENVIRONMENT, "TERM": os.environ.get("TERM") or "xterm-256color"}
    try:
        with caught_signals() as caught, raw_terminal(stdin, stdout) as terminal:
            size = terminal.size()

            def command(shell: Invocation) -> Command:
                return Command(shell.program, shell.arguments, environment, user=user, terminal=size)

            async with (
                beside(_leave_on_signal(caught), keep_alive(server, sandbox_id)),
                start_first(server.daemon_of(sandbox), interactive_shells(), command) as (process, note),
                _ended_with(process, terminal),
            ):
                if note is not None:
                    await terminal.tell(note)
                return await _show(process, terminal)
    except _Left:
        return exit_codes.FAILURE


@contextlib.asynccontextmanager
async def _ended_with(process: RunningProcess, terminal: Terminal) -> AsyncIterator[None]:
    """End the remote shell when it is left early: nobody could come back to it."""
    try:
        yield
    except BaseException:
        terminal.reset()
        await kill(process)
        raise


async def _show(process: RunningProcess, terminal: Terminal) -> int:
    async with beside(_pass_sizes(process, terminal), _pass_keys(process, terminal)):
        async for event in process.follow():
            match event:
                case Output(_, content):
                    await terminal.show(content)
                case Reconnected():
                    await terminal.tell("the connection broke and is back")
                    terminal.note_resize()
                case Ended():
                    return exit_codes.of_end(event)
    raise AssertionError("a followed process ends with its end or with an error")


async def _pass_keys(process: RunningProcess, terminal: Terminal) -> None:
    escape = EscapeFilter()
    with contextlib.suppress(InputClosed, ProcessNotFound):
        async for keys in terminal.keys():
            passed, is_leaving = escape.feed(keys)
            if is_leaving:
                raise _Left
            if passed:
                await process.send_input(passed)


async def _pass_sizes(process: RunningProcess, terminal: Terminal) -> None:
    async for size in terminal.sizes():
        with contextlib.suppress(AgentEnvError):  # the next change of size tries again
            await process.resize(size)


async def _leave_on_signal(caught: CaughtSignals) -> None:
    raise Interrupted(exit_codes.of_signal(await caught.next()))
