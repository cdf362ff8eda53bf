import asyncio
import hashlib
import json
import os

import pytest

from agentenv.base.errors import AgentEnvError
from agentenv.client.base import (
    Channel,
    Command,
    Ended,
    Output,
    ProcessEvent,
    Reconnected,
    Sandbox,
    Signal,
    TerminalSize,
)
from agentenv.client.daemon import Daemon
from agentenv.client.errors import (
    AccessRefused,
    AnswerInvalid,
    CommandTimedOut,
    InputClosed,
    ProcessNotFound,
    RequestRefused,
    SandboxGone,
    ServerFailed,
    StreamLost,
)
from agentenv.client.process import start_process
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport
from support.fake_server import PID, TOKEN, Call, FakeServer
from support.instant_clock import InstantClock

COMMAND = Command("/bin/true")


async def run(daemon: Daemon, command: Command = COMMAND) -> list[ProcessEvent]:
    async with start_process(daemon, command, InstantClock()) as process:
        return [event async for event in process.follow()]


def content(events: list[ProcessEvent], channel: Channel) -> bytes:
    return b"".join(event.content for event in events if isinstance(event, Output) and event.channel is channel)


async def test_a_start_says_what_to_run_and_routes_by_headers(daemon: Daemon, server: FakeServer) -> None:
    await run(daemon, Command("/bin/ls", ("-l",), {"A": "b"}, cwd="/tmp", user="root", timeout_seconds=1.5))

    request = server.requests[-1]
    assert json.loads(request.body[5:]) == {
        "process": {"cmd": "/bin/ls", "args": ["-l"], "envs": {"A": "b"}, "cwd": "/tmp"},
        "stdin": False,
    }
    sent = {name.lower(): value for name, value in request.headers.items()}
    assert sent["e2b-sandbox-port"] == "49983"
    assert sent["x-access-token"] == TOKEN
    assert sent["connect-timeout-ms"] == "1500"
    assert sent["authorization"] == "Basic cm9vdDo="
    assert sent["content-type"] == "application/connect+json"
    assert "x-api-key" not in sent


async def test_a_command_without_choices_sends_neither_user_nor_deadline(daemon: Daemon, server: FakeServer) -> None:
    await run(daemon)

    assert {"Authorization", "Connect-Timeout-Ms"}.isdisjoint(server.requests[-1].headers)


async def test_a_user_that_would_be_cut_at_its_colon_is_refused(daemon: Daemon, server: FakeServer) -> None:
    with pytest.raises(RequestRefused, match="'root:x'"):
        await run(daemon, Command("/bin/ls", user="root:x"))

    assert server.seen("POST /process.Process/Start") == []


async def test_a_configured_sandbox_url_is_filled_in(
    transport: Transport, settings: ClientSettings, server: FakeServer, sandbox: Sandbox
) -> None:
    url = f"{server.url}/at/{{id}}/{{port}}"
    server.answer(f"POST /at/{sandbox.sandbox_id}/49983/process.Process/Start", 404, {"code": "not_found"})

    with pytest.raises(ProcessNotFound):
        await run(Daemon(transport, settings.model_copy(update={"sandbox_url": url}), sandbox))


async def test_output_arrives_unchanged_and_in_order(daemon: Daemon, server: FakeServer) -> None:
    pieces = [os.urandom(32 * 1024) for _ in range(320)]

    async def scenario(call: Call) -> None:
        await call.start()
        for piece in pieces:
            await call.output("stdout", piece)
        await call.output("stderr", b"\x00\xff")
        await call.end(3)

    server.on_start = scenario
    events = await run(daemon)

    digest = hashlib.sha256(content(events, Channel.STDOUT)).digest()
    assert digest == hashlib.sha256(b"".join(pieces)).digest()
    assert content(events, Channel.STDERR) == b"\x00\xff"
    assert events[-1] == Ended(3)


async def test_a_stream_in_slow_single_bytes_is_understood(daemon: Daemon, server: FakeServer) -> None:
    async def scenario(call: Call) -> None:
        whole = bytearray()
        messages: list[dict[str, object]] = [
            {"start": {"pid": PID}},
            {"keepalive": {}},
            {"data": {"stdout": "aGkK"}},
            {"end": {}},
        ]
        for message in messages:
            payload = json.dumps({"event": message}).encode()
            whole += b"\x00" + len(payload).to_bytes(4, "big") + payload
        for byte in whole:
            await call.raw(bytes([byte]))
            await asyncio.sleep(0)

    server.on_start = scenario

    assert await run(daemon) == [Output(Channel.STDOUT, b"hi\n"), Ended(0)]


@pytest.mark.parametrize(
    "status, signal", [("signal: killed", "killed"), ("signal: segmentation fault (core dumped)", "segmentation fault")]
)
async def test_the_signal_that_ended_a_process_is_named(
    daemon: Daemon, server: FakeServer, status: str, signal: str
) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await call.end(-1, status)

    server.on_start = scenario

    assert await run(daemon) == [Ended(-1, signal)]


@pytest.mark.parametrize(
    "code, error",
    [
        ("invalid_argument", RequestRefused),
        ("unauthenticated", AccessRefused),
        ("deadline_exceeded", CommandTimedOut),
        ("internal", ServerFailed),
        ("made_up", ServerFailed),
    ],
)
async def test_the_end_of_a_stream_can_be_an_error(
    daemon: Daemon, server: FakeServer, code: str, error: type[AgentEnvError]
) -> None:
    async def scenario(call: Call) -> None:
        await call.fail(code, "because\x1b[31m")

    server.on_start = scenario

    with pytest.raises(error, match=r"because \[31m"):
        await run(daemon)


GARBAGE: list[bytes] = [
    b"HTTP/1.1 200 OK",
    b"\x00\x00\x00\x00\x03{}}",
    b"\x00\x00\x00\x00\x02[]",
    b'\x00\x00\x00\x00\x0b{"event":5}',
    b"\x00\xff\xff\xff\xff",
    b"\x01\x00\x00\x00\x00",
    b"\x02\x00\x00\x00\x03\xff\xfe\xfd",
]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_instead_of_a_start_is_refused(daemon: Daemon, server: FakeServer, garbage: bytes) -> None:
    async def scenario(call: Call) -> None:
        await call.raw(garbage)

    server.on_start = scenario

    with pytest.raises(AnswerInvalid):
        await run(daemon)


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_after_the_start_is_refused(daemon: Daemon, server: FakeServer, garbage: bytes) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await call.raw(garbage)

    server.on_start = scenario

    with pytest.raises(AnswerInvalid):
        await run(daemon)


async def test_output_that_is_not_base64_is_refused(daemon: Daemon, server: FakeServer) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await call.send({"event": {"data": {"stdout": "%%%"}}})

    server.on_start = scenario

    with pytest.raises(AnswerInvalid, match="stdout"):
        await run(daemon)


async def test_another_content_type_is_not_read(daemon: Daemon, server: FakeServer) -> None:
    server.answer("POST /process.Process/Start", 200, b"<html>", Content_Type="text/html")

    with pytest.raises(AnswerInvalid, match="does not speak the protocol"):
        await run(daemon)


async def test_a_proxy_error_with_an_unreadable_body_is_named(daemon: Daemon, server: FakeServer) -> None:
    server.answer("POST /process.Process/Start", 502, b"<html>nginx</html>")

    with pytest.raises(ServerFailed, match="does not answer"):
        await run(daemon)


async def test_a_killed_sandbox_is_gone(daemon: Daemon, server: FakeServer) -> None:
    server.sandboxes.clear()

    with pytest.raises(SandboxGone, match="killed, is paused, or reached its end of life"):
        await run(daemon)


async def cut_after_output(call: Call) -> None:
    await call.start()
    await call.output("stdout", b"before ")
    call.drop()


async def test_a_broken_stream_is_taken_up_again_by_number(daemon: Daemon, server: FakeServer) -> None:
    async def again(call: Call) -> None:
        assert call.message == {"process": {"pid": PID}}
        await call.start()
        await call.output("stdout", b"after")
        await call.end(5)

    server.on_start, server.on_connect = cut_after_output, again
    events = await run(daemon)

    assert events == [Output(Channel.STDOUT, b"before "), Reconnected(), Output(Channel.STDOUT, b"after"), Ended(5)]
    assert len(server.seen("POST /process.Process/Start")) == 1


async def test_a_stream_that_breaks_at_every_try_is_given_up(daemon: Daemon, server: FakeServer) -> None:
    async def start_only(call: Call) -> None:
        await call.start()
        call.drop()

    server.on_start, server.on_connect = cut_after_output, start_only

    with pytest.raises(StreamLost):
        await run(daemon)

    assert len(server.seen("POST /process.Process/Connect")) == 4


async def test_a_process_that_ended_unseen_is_no_success(daemon: Daemon, server: FakeServer) -> None:
    async def unknown(call: Call) -> None:
        await call.fail("not_found", "process with pid 4711 not found")

    server.on_start, server.on_connect = cut_after_output, unknown

    with pytest.raises(StreamLost, match="exit code is unknown"):
        await run(daemon)


async def test_a_sandbox_killed_during_a_command_is_gone(daemon: Daemon, server: FakeServer) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        server.sandboxes.clear()
        call.drop()

    server.on_start = scenario

    with pytest.raises(SandboxGone):
        await run(daemon)


async def test_a_break_before_the_start_is_never_repeated(daemon: Daemon, server: FakeServer) -> None:
    async def scenario(call: Call) -> None:
        call.drop()

    server.on_start = scenario

    with pytest.raises(StreamLost):
        await run(daemon)

    assert len(server.seen("POST /process.Process/Start")) == 1


async def test_a_silent_stream_is_lost(settings: ClientSettings, server: FakeServer, sandbox: Sandbox) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await asyncio.Event().wait()

    server.on_start = server.on_connect = scenario
    async with Transport(settings.model_copy(update={"silence_limit_seconds": 0.05})) as short:
        with pytest.raises(StreamLost, match="fell silent"):
            await run(Daemon(short, settings, sandbox))


async def test_inputs_signals_and_sizes_reach_the_process(daemon: Daemon, server: FakeServer) -> None:
    await daemon.send_input(PID, b"\x00in")
    await daemon.close_input(PID)
    await daemon.send_signal(PID, Signal.KILL)
    await daemon.resize(PID, TerminalSize(100, 40))

    assert [server.process.inputs.get_nowait(), server.process.inputs.get_nowait()] == [b"\x00in", None]
    assert server.process.signals.get_nowait() == "SIGNAL_SIGKILL"
    assert server.process.sizes.get_nowait() == (100, 40)


async def test_a_terminal_takes_its_keys_by_another_name(daemon: Daemon, server: FakeServer) -> None:
    command = Command("/bin/bash", terminal=TerminalSize(80, 24))
    async with start_process(daemon, command) as process:
        await process.send_input(b"x")

    start, keys = server.requests[-2:]
    assert json.loads(start.body[5:])["pty"] == {"size": {"cols": 80, "rows": 24}}
    assert keys.document == {"process": {"pid": PID}, "input": {"pty": "eA=="}}


@pytest.mark.parametrize("status, code, error", [(500, "internal", InputClosed), (404, "not_found", ProcessNotFound)])
async def test_input_that_nobody_takes_is_told_apart(
    daemon: Daemon, server: FakeServer, status: int, code: str, error: type[AgentEnvError]
) -> None:
    server.answer("POST /process.Process/SendInput", status, {"code": code, "message": "no"})

    with pytest.raises(error):
        await daemon.send_input(PID, b"x")


@pytest.mark.parametrize("works", [True, False])
async def test_a_signal_to_the_group_goes_through_the_sandboxs_shell(
    daemon: Daemon, server: FakeServer, works: bool
) -> None:
    server.group_signals_work = works
    async with start_process(daemon, Command("/bin/cat", user="root")) as process:
        assert await process.send_group_signal("INT") is works

    assert server.process.group_signals.get_nowait() == "INT"
    assert server.requests[-1].headers["Authorization"] == "Basic cm9vdDo="
