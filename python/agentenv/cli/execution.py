"""Runs one command in a sandbox as if it ran here: its streams are ours, its end is ours, our signals are its."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.cli import exit_codes
from agentenv.cli.beside import beside
from agentenv.cli.command_line import Invocation, invocations
from agentenv.cli.errors import ShellMissing
from agentenv.cli.interruption import CaughtSignals, caught_signals, end_on_signal, kill
from agentenv.cli.server import Server
from agentenv.cli.streams import read_chunks, write_all
from agentenv.client.base import Channel, Command, Ended, Output, Reconnected
from agentenv.client.daemon import Daemon
from agentenv.client.errors import CommandTimedOut, InputClosed, ProcessNotFound, RequestRefused
from agentenv.client.process import RunningProcess, start_process

_KEEP_ALIVE_SECONDS = 60
_KEEP_ALIVE_INTERVAL_SECONDS = 20
# The daemon enforces the command's deadline; this long after it, we stop trusting it to.
DEADLINE_GRACE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Request:
    """What `aenv exec` was asked to do."""

    sandbox_id: SandboxId
    words: tuple[str, ...]
    environment: dict[str, str]
    user: str | None = None
    cwd: str | None = None
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors of the standard streams; `stdin` None forwards no input."""

    stdin: int | None
    stdout: int
    stderr: int


async def execute(server: Server, request: Request, streams: Streams) -> int:
    """Run the command and return its exit code."""
    sandbox = await server.api.connect(request.sandbox_id)
    timeout_seconds = request.timeout_seconds

    def command(invocation: Invocation) -> Command:
        return Command(
            invocation.program,
            invocation.arguments,
            request.environment,
            cwd=request.cwd,
            user=request.user,
            stdin=streams.stdin is not None,
            timeout_seconds=timeout_seconds,
        )

    ways = invocations(request.words)
    try:
        async with start_first(server.daemon_of(sandbox), ways, command) as (process, note):
            if note is not None:
                await _tell(streams.stderr, note)
            with caught_signals() as caught:
                code = await _accompany(server, request, process, streams, caught)
            return code if caught.first is None else exit_codes.of_signal(caught.first)
    except (CommandTimedOut, TimeoutError) as error:
        message = f"the command did not end within {timeout_seconds} s and was killed"
        raise CommandTimedOut(message) from error


@contextlib.asynccontextmanager
async def start_first(
    daemon: Daemon, ways: Sequence[Invocation], command: Callable[[Invocation], Command]
) -> AsyncIterator[tuple[RunningProcess, str | None]]:
    """Start the first of `ways` whose program the image has; give the process and the note that belongs to it."""
    async with contextlib.AsyncExitStack() as stack:
        refusal: RequestRefused | None = None
        for way in ways:
            try:
                process = await stack.enter_async_context(start_process(daemon, command(way)))
            except RequestRefused as error:
                if not _is_program_missing(error, way.program):
                    raise
                refusal = error
            else:
                yield process, way.note
                return
        tried = " nor ".join(way.program for way in ways)
        raise ShellMissing(
            f"the image has neither {tried}; give a program that it has, and its arguments, as separate words"
        ) from refusal


def _is_program_missing(error: RequestRefused, program: str) -> bool:
    # The contract has one code for all that is wrong with a command; a bad directory is named first in its message.
    return program in error.message and not error.message.startswith("cwd")


async def _accompany(
    server: Server, request: Request, process: RunningProcess, streams: Streams, caught: CaughtSignals
) -> int:
    helpers = [keep_alive(server, request.sandbox_id), end_on_signal(process, caught)]
    if streams.stdin is not None:
        helpers.append(_feed(process, streams.stdin))
    guard = None if request.timeout_seconds is None else request.timeout_seconds + DEADLINE_GRACE_SECONDS
    try:
        async with asyncio.timeout(guard), beside(*helpers):
            return await _drain(process, streams)
    except BrokenPipeError:
        await kill(process)
        return exit_codes.of_signal(signal.SIGPIPE)
    except (AgentEnvError, TimeoutError):
        # Whoever waited for the command is told that it failed: it must not go on behind their back.
        await kill(process)
        raise


async def _drain(process: RunningProcess, streams: Streams) -> int:
    async for event in process.follow():
        match event:
            case Output(channel, content):
                await write_all(streams.stderr if channel is Channel.STDERR else streams.stdout, content)
            case Reconnected():
                await _tell(streams.stderr, "the connection broke and is back; output may be missing here")
            case Ended():
                return exit_codes.of_end(event)
    raise AssertionError("a followed process ends with its end or with an error")


async def _feed(process: RunningProcess, stdin: int) -> None:
    with contextlib.suppress(InputClosed, ProcessNotFound):  # as a broken pipe: the process wants no more
        async for chunk in read_chunks(stdin):
            await process.send_input(chunk)
        await process.close_input()


async def keep_alive(server: Server, sandbox_id: SandboxId) -> None:
    """Keep the deadline of a sandbox away for as long as somebody works in it. A failure shows elsewhere."""
    while True:
        await server.clock.sleep(_KEEP_ALIVE_INTERVAL_SECONDS)
        with contextlib.suppress(AgentEnvError):
            await server.api.keep_alive(sandbox_id, _KEEP_ALIVE_SECONDS)


async def _tell(stderr: int, note: str) -> None:
    await write_all(stderr, f"aenv: {note}\n".encode())
