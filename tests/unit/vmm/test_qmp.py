"""The control line against a monitor that answers, is slow, speaks nonsense or goes away."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agentenv.base import aio
from agentenv.vmm.errors import CommandRefused, MonitorLost
from agentenv.vmm.qmp import QmpClient, QmpEvent

GREETING = b'{"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}, "capabilities": []}}\r\n'
AGREED = b'{"return": {}}\r\n'

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[[Script], Awaitable[Path]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Serve a script on a real socket, in this very process."""
    servers: list[asyncio.Server] = []
    path = tmp_path / "qmp.sock"

    async def start(script: Script) -> Path:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await script(reader, writer)
            finally:
                writer.close()

        servers.append(await asyncio.start_unix_server(answer, path))
        return path

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.fixture
async def supervisor() -> AsyncIterator[aio.Supervisor]:
    owner = aio.Supervisor()
    yield owner
    await owner.stop()


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(GREETING)
    await reader.readline()
    writer.write(AGREED)


async def _connect(path: Path, pid: int | None = None) -> QmpClient:
    return await QmpClient.connect(path, pid=os.getpid() if pid is None else pid, timeout_seconds=0.2)


def _after_greeting(script: Script) -> Script:
    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _greet(reader, writer)
        await script(reader, writer)

    return whole


def _ignore(_event: QmpEvent) -> None:
    """Take no notice."""


async def test_answers_find_their_commands_whatever_their_order(serve: Serve, supervisor: aio.Supervisor) -> None:
    async def backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = [json.loads(await reader.readline()) for _ in range(2)]
        for request in reversed(requests):
            writer.write(json.dumps({"return": request["execute"], "id": request["id"]}).encode() + b"\r\n")
        await reader.read()

    client = await _connect(await serve(_after_greeting(backwards)))
    supervisor.start("listen", client.listen(_ignore))

    answers = await asyncio.gather(client.execute("stop"), client.execute("cont", {"now": True}))

    assert list(answers) == ["stop", "cont"]
    await client.close()


async def test_refusal_carries_the_monitors_words(serve: Serve, supervisor: aio.Supervisor) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = json.loads(await reader.readline())["id"]
        error = {"class": "CommandNotFound", "desc": "The command dance has not been found"}
        writer.write(json.dumps({"error": error, "id": number}).encode() + b"\r\n")
        await reader.read()

    client = await _connect(await serve(_after_greeting(refuse)))
    supervisor.start("listen", client.listen(_ignore))

    with pytest.raises(CommandRefused, match="dance has not been found"):
        await client.execute("dance")
    await client.close()


async def test_events_are_handed_on_until_the_connection_ends(serve: Serve) -> None:
    async def shut_down(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"event": "STOP", "timestamp": {}}\r\n')
        writer.write(b'{"event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}}\r\n')

    client = await _connect(await serve(_after_greeting(shut_down)))
    events: list[QmpEvent] = []
    await client.listen(events.append)

    assert events == [QmpEvent("STOP", {}), QmpEvent("SHUTDOWN", {"guest": True, "reason": "guest-reset"})]
    with pytest.raises(MonitorLost, match="cont was not sent: the monitor's connection ended"):
        await client.execute("cont")
    await client.close()


async def test_a_flood_of_events_holds_nobody_up(serve: Serve) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _greet(reader, writer)
        writer.write(b'{"event": "E", "data": {}}\n' * 1000)

    client = await _connect(await serve(flood))
    events, longest_run = 0, 0

    def note(_event: QmpEvent) -> None:
        nonlocal events
        events += 1

    async def look_on() -> None:
        nonlocal longest_run
        seen = 0
        while True:
            longest_run = max(longest_run, events - seen)
            seen = events
            await asyncio.sleep(0)

    onlooker = asyncio.ensure_future(look_on())
    await client.listen(note)
    onlooker.cancel()
    await client.close()

    assert events == 1000
    assert longest_run <= 2


async def test_command_fails_when_the_monitor_goes_away(serve: Serve, supervisor: aio.Supervisor) -> None:
    async def leave(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readline()

    client = await _connect(await serve(_after_greeting(leave)))
    supervisor.start("listen", client.listen(_ignore))

    with pytest.raises(MonitorLost, match="connection ended"):
        await client.execute("cont")
    await client.close()


async def test_silence_is_bounded_and_a_late_answer_is_nobodys(serve: Serve, supervisor: aio.Supervisor) -> None:
    async def sleepy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        late = json.loads(await reader.readline())["id"]
        prompt = json.loads(await reader.readline())["id"]
        writer.write(json.dumps({"return": "late", "id": late}).encode() + b"\r\n")
        writer.write(json.dumps({"return": "prompt", "id": prompt}).encode() + b"\r\n")
        await reader.read()

    client = await _connect(await serve(_after_greeting(sleepy)))
    supervisor.start("listen", client.listen(_ignore))

    with pytest.raises(MonitorLost, match=r"did not answer stop within 0\.2 s"):
        await client.execute("stop")
    assert await client.execute("cont") == "prompt"
    await client.close()


@pytest.mark.parametrize(
    "nonsense, reason",
    [
        (b"hello\r\n", "not JSON"),
        (b"[1, 2]\r\n", "not an object"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b'{"QMP": "' + b"x" * 300_000 + b'"}\n', "more than 262144 bytes"),
        (b'{"event": "STOP"}\r\n', "not QMP"),
        (b'{"QMP": {', "connection ended"),
        (b"", "connection ended"),
    ],
)
async def test_nonsense_for_a_greeting_is_no_monitor(serve: Serve, nonsense: bytes, reason: str) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(nonsense)

    with pytest.raises(MonitorLost, match=reason):
        await _connect(await serve(talk))


async def test_nonsense_later_ends_the_connection(serve: Serve) -> None:
    async def rave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"return": 1, "id": 77}\r\n{"id": {}, "event": 3}\r\n\xff\xfe\r\n')
        await reader.read()

    client = await _connect(await serve(_after_greeting(rave)))
    await client.listen(_ignore)

    with pytest.raises(MonitorLost, match="not JSON"):
        await client.execute("cont")
    await client.close()


async def test_monitor_that_never_greets_is_given_up(serve: Serve) -> None:
    async def stare(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(MonitorLost, match=r"did not greet within 0\.2 s"):
        await _connect(await serve(stare))


async def test_refused_agreement_is_reported(serve: Serve) -> None:
    async def disagree(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING)
        await reader.readline()
        writer.write(b'{"error": {"desc": "not today"}}\r\n')
        await reader.read()

    with pytest.raises(MonitorLost, match="not today"):
        await _connect(await serve(disagree))


async def test_another_process_behind_the_socket_is_turned_down(serve: Serve) -> None:
    path = await serve(_after_greeting(_greet))

    with pytest.raises(MonitorLost, match="another process than monitor 1"):
        await _connect(path, pid=1)


async def test_nobody_behind_the_socket_is_the_callers_to_see(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await _connect(tmp_path / "absent")
