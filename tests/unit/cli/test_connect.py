import json
import signal
from collections.abc import Awaitable, Callable

import pytest

from support.aenv import Finished
from support.aenv_terminal import in_terminal
from support.fake_server import Call, FakeServer

SANDBOX = "iabcdefghijklmnopqrst"
Run = Callable[..., Awaitable[Finished]]


async def echo_shell(server: FakeServer, call: Call) -> None:
    """Play a shell that shows every key in brackets and ends with 5 on `q`."""
    await call.start()
    await call.output("pty", b"$ ")
    while (keys := await server.process.inputs.get()) != b"q":
        assert keys is not None
        await call.output("pty", b"<" + keys + b">")
    await call.end(5)


@pytest.fixture
def shell(server: FakeServer) -> FakeServer:
    """Return the server with a shell in its sandbox."""
    server.on_start = lambda call: echo_shell(server, call)
    return server


async def test_keys_go_there_and_output_comes_back_unchanged(shell: FakeServer, environment: dict[str, str]) -> None:
    async with in_terminal("connect", SANDBOX, environment=environment) as terminal:
        before = terminal.attributes()
        await terminal.until(b"$ ")
        assert terminal.is_raw()
        terminal.press(b"\x03")
        await terminal.until(b"<\x03>")
        terminal.press(b"\x1b[A")
        await terminal.until(b"<\x1b[A>")
        terminal.press(b"q")

        assert await terminal.end() == 5
        assert terminal.attributes() == before
        assert terminal.shown == b"$ <\x03><\x1b[A>"


async def test_the_remote_terminal_has_the_size_and_kind_of_ours(
    shell: FakeServer, environment: dict[str, str]
) -> None:
    async with in_terminal("connect", SANDBOX, "--user", "root", environment=environment) as terminal:
        await terminal.until(b"$ ")
        terminal.resize(101, 41)

        assert await shell.process.sizes.get() == (101, 41)
        terminal.press(b"q")
        await terminal.end()

    (request,) = shell.seen("POST /process.Process/Start")
    start = json.loads(request.body[5:])
    assert start["pty"] == {"size": {"cols": 90, "rows": 30}}
    assert (start["process"]["cmd"], start["process"]["args"]) == ("/bin/bash", ["-i", "-l"])
    assert start["process"]["envs"]["TERM"] == "xterm"
    assert request.headers["Authorization"] == "Basic cm9vdDo="


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_a_signal_restores_the_terminal_and_ends_the_shell(
    shell: FakeServer, environment: dict[str, str], number: int, code: int
) -> None:
    async with in_terminal("connect", SANDBOX, environment=environment) as terminal:
        before = terminal.attributes()
        await terminal.until(b"$ ")
        terminal.child.send_signal(number)

        assert await terminal.end() == code
        assert terminal.attributes() == before
        assert await shell.process.signals.get() == "SIGNAL_SIGKILL"


async def die(server: FakeServer, call: Call) -> None:
    server.sandboxes.clear()
    call.drop()


async def babble(server: FakeServer, call: Call) -> None:
    await call.raw(b"\x07\x00\x00\x00\x00")


@pytest.mark.parametrize("ending, message", [(die, b"end of life"), (babble, b"unknown flags")])
async def test_a_session_that_breaks_restores_the_terminal_and_says_why(
    server: FakeServer,
    environment: dict[str, str],
    ending: Callable[[FakeServer, Call], Awaitable[None]],
    message: bytes,
) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await call.output("pty", b"$ ")
        await server.process.inputs.get()
        await ending(server, call)

    server.on_start = scenario
    async with in_terminal("connect", SANDBOX, environment=environment) as terminal:
        before = terminal.attributes()
        await terminal.until(b"$ ")
        terminal.press(b"x")

        assert await terminal.end() == 1
        assert terminal.attributes() == before
        assert message in terminal.shown
        assert b"\x1b[?25h" in terminal.shown


async def test_the_escape_leaves_and_ends_the_shell(shell: FakeServer, environment: dict[str, str]) -> None:
    async with in_terminal("connect", SANDBOX, environment=environment) as terminal:
        await terminal.until(b"$ ")
        terminal.press(b"a~.\r")
        await terminal.until(b"<a~.\r>")
        terminal.press(b"~.")

        assert await terminal.end() == 1
        assert await shell.process.signals.get() == "SIGNAL_SIGKILL"


async def test_the_terminal_is_raw_again_after_a_stop(shell: FakeServer, environment: dict[str, str]) -> None:
    async with in_terminal("connect", SANDBOX, environment=environment) as terminal:
        await terminal.until(b"$ ")
        terminal.make_cooked()
        terminal.child.send_signal(signal.SIGCONT)

        assert await shell.process.sizes.get() == (90, 30)
        assert terminal.is_raw()


async def test_an_image_without_bash_gets_sh_and_a_note(server: FakeServer, environment: dict[str, str]) -> None:
    async def scenario(call: Call) -> None:
        if call.message["process"]["cmd"] == "/bin/bash":
            await call.fail("invalid_argument", "fork/exec /bin/bash: no such file or directory")
            return
        await echo_shell(server, call)

    server.on_start = scenario
    async with in_terminal("connect", SANDBOX, environment=environment) as terminal:
        await terminal.until(b"$ ")
        terminal.press(b"q")
        assert await terminal.end() == 5

    assert b"aenv: the image has no /bin/bash, so this is /bin/sh\r\n" in terminal.shown


async def test_a_broken_connection_is_taken_up_again(server: FakeServer, environment: dict[str, str]) -> None:
    async def cut(call: Call) -> None:
        await call.start()
        await call.output("pty", b"$ ")
        call.drop()

    server.on_start = cut
    server.on_connect = lambda call: echo_shell(server, call)
    async with in_terminal("connect", SANDBOX, environment=environment) as terminal:
        await terminal.until(b"aenv: the connection broke and is back\r\n")
        assert await server.process.sizes.get() == (90, 30)
        terminal.press(b"q")

        assert await terminal.end() == 5


async def test_without_a_terminal_connect_says_what_to_use(run: Run, server: FakeServer) -> None:
    finished = await run("connect", SANDBOX)

    assert finished == Finished(
        1, b"", b"aenv: connect needs a terminal; use `aenv exec` to run a command without one\n"
    )
    assert server.requests == []


async def test_an_unknown_sandbox_leaves_the_terminal_alone(environment: dict[str, str]) -> None:
    async with in_terminal("connect", "inothing", environment=environment) as terminal:
        before = terminal.attributes()

        assert await terminal.end() == 1
        assert terminal.attributes() == before
        assert b"cannot connect to sandbox inothing" in terminal.shown
