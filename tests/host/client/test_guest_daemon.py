import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentenv.base.ids import SandboxId
from agentenv.client.base import Channel, Command, Ended, Output, ProcessEvent, Sandbox, Signal, TerminalSize
from agentenv.client.daemon import Daemon
from agentenv.client.errors import AccessRefused, CommandTimedOut, InputClosed, ProcessNotFound, RequestRefused
from agentenv.client.process import RunningProcess, start_process
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport
from support.guest_daemon import running_daemon

pytestmark = pytest.mark.host


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with running_daemon(tmp_path / "state") as url:
        settings = ClientSettings(api_url=url)
        async with Transport(settings) as transport:
            yield Daemon(transport, settings, Sandbox(SandboxId("itest"), "t", "0.6.13", None))


def shell(line: str, *, stdin: bool = False, timeout_seconds: float | None = None) -> Command:
    return Command("/bin/sh", ("-c", line), user="root", cwd="/", stdin=stdin, timeout_seconds=timeout_seconds)


async def run(daemon: Daemon, command: Command) -> list[ProcessEvent]:
    async with asyncio.timeout(30), start_process(daemon, command) as process:
        return [event async for event in process.follow()]


def content(events: list[ProcessEvent], channel: Channel) -> bytes:
    return b"".join(event.content for event in events if isinstance(event, Output) and event.channel is channel)


async def read_until(process: RunningProcess, expected: bytes) -> bytes:
    shown = b""
    async for event in process.follow():
        if isinstance(event, Output):
            shown += event.content
        if expected in shown:
            return shown
    raise AssertionError(f"ended without {expected!r} after {shown!r}")


async def test_streams_and_exit_code(daemon: Daemon) -> None:
    events = await run(daemon, shell("printf out; printf err >&2; exit 7"))

    assert (content(events, Channel.STDOUT), content(events, Channel.STDERR)) == (b"out", b"err")
    assert events[-1] == Ended(7)


async def test_ten_mebibytes_arrive_unchanged(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "random"
    path.write_bytes(os.urandom(10 * 1024 * 1024))

    events = await run(daemon, shell(f"cat {path}"))

    received = hashlib.sha256(content(events, Channel.STDOUT)).digest()
    assert received == hashlib.sha256(path.read_bytes()).digest()


async def test_a_signal_is_named(daemon: Daemon) -> None:
    assert (await run(daemon, shell("kill -SEGV $$")))[-1] == Ended(-1, "segmentation fault")


async def test_input_is_echoed_by_cat_until_it_is_closed(daemon: Daemon) -> None:
    async with asyncio.timeout(30), start_process(daemon, shell("exec cat", stdin=True)) as process:
        await process.send_input(b"\x00one")
        await process.send_input(b"two\xff")
        await process.close_input()
        events = [event async for event in process.follow()]

    assert content(events, Channel.STDOUT) == b"\x00onetwo\xff"
    assert events[-1] == Ended(0)


async def test_input_after_the_end_is_told_apart(daemon: Daemon) -> None:
    async with asyncio.timeout(30), start_process(daemon, shell("cat; exec sleep 60", stdin=True)) as process:
        await process.close_input()
        with pytest.raises(InputClosed):
            await process.send_input(b"late")
        await process.send_signal(Signal.KILL)
        assert [event async for event in process.follow()] == [Ended(-1, "killed")]
        with pytest.raises(ProcessNotFound):
            await process.send_input(b"too late")


async def test_a_deadline_kills(daemon: Daemon) -> None:
    with pytest.raises(CommandTimedOut):
        await run(daemon, shell("sleep 60", timeout_seconds=0.2))


async def test_killing_works_and_is_named(daemon: Daemon) -> None:
    async with asyncio.timeout(30), start_process(daemon, shell("exec sleep 60")) as process:
        await process.send_signal(Signal.KILL)

        assert [event async for event in process.follow()] == [Ended(-1, "killed")]


async def test_a_group_signal_reaches_the_children(daemon: Daemon) -> None:
    # A loop of short sleeps, because dash loses a signal that comes while it is starting a program.
    line = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done"
    async with asyncio.timeout(30), start_process(daemon, shell(line)) as process:
        await read_until(process, b"ready\n")
        assert await process.send_group_signal("INT")

        events = [event async for event in process.follow()]

    assert content(events, Channel.STDOUT) == b"caught\n"
    assert events[-1] == Ended(3)


async def test_a_terminal_has_our_size_and_follows_it(daemon: Daemon) -> None:
    command = Command("/bin/sh", ("-i",), {"PS1": "$ "}, user="root", terminal=TerminalSize(91, 31))
    async with asyncio.timeout(30), start_process(daemon, command) as process:
        await process.send_input(b"stty size; tty >/dev/null && echo is-$((1))-tty\r")
        assert b"31 91" in await read_until(process, b"is-1-tty")
        await process.resize(TerminalSize(100, 40))
        await process.send_input(b"stty size; echo done-$((2))\r")
        assert b"40 100" in await read_until(process, b"done-2")
        await process.send_input(b"exit 6\r")

        assert [event async for event in process.follow()][-1] == Ended(6)


@pytest.mark.parametrize(
    "command, error, message",
    [
        (Command("/no/such/program", user="root"), RequestRefused, "/no/such/program"),
        (Command("/bin/true", user="root", cwd="/no/such"), RequestRefused, "cwd '/no/such' does not exist"),
        (Command("/bin/true", user="nobody-of-that-name"), AccessRefused, "invalid username"),
    ],
)
async def test_what_cannot_start_says_why(
    daemon: Daemon, command: Command, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await run(daemon, command)


async def test_a_second_stream_joins_a_running_process(daemon: Daemon) -> None:
    async with (
        asyncio.timeout(30),
        start_process(daemon, shell("exec cat", stdin=True)) as process,
        daemon.open_connect(process.pid) as stream,
    ):
        assert await stream.read_start() == process.pid
        await process.send_input(b"for both")
        await process.close_input()

        assert [event async for event in stream.read_events()] == [Output(Channel.STDOUT, b"for both"), Ended(0)]
