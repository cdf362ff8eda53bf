"""Images with next to nothing in them: one static program, busybox, musl as in Alpine, Python without a shell."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import CommandExitException, InvalidArgumentException, PtySize, Sandbox
from pydantic import SecretStr

from agentenv.base.ids import SandboxId
from agentenv.client.api import ApiClient
from agentenv.client.base import Channel, Command, Ended, Output
from agentenv.client.daemon import Daemon
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport
from agentenv.main.demo.scratch import ScratchServer
from support import root_trees
from support.image_maker import Recipe, add_images
from support.server import access_to, prepared_daemon, real_home, real_server, settings_for_tests

SETTINGS = settings_for_tests(prefix="aenvmini", network="10.207.0.0/24", uid_base=360_000)


def one_program(root: Path) -> None:
    """Our own static binary, and no directory to begin with."""
    shutil.copy(prepared_daemon(), root / "app")
    (root / "app").chmod(0o755)


@pytest.fixture(scope="module")
def server(prepared: None) -> Iterator[ScratchServer]:
    """A server that also knows the small images."""
    with real_home("test-minimal") as home:
        add_images(
            home,
            Recipe("scratch", one_program),
            Recipe("busybox", root_trees.busybox),
            Recipe("musl", root_trees.musl, user="user"),
            Recipe("distroless", root_trees.distroless, user="nonroot", size_mib=128),
        )
        with real_server(home, SETTINGS) as started:
            yield started


@contextmanager
def created(server: ScratchServer, template: str) -> Iterator[Sandbox]:
    sandbox = Sandbox.create(template, timeout=600, request_timeout=120, **access_to(server))
    yield sandbox
    sandbox.kill()


@pytest.fixture(scope="module")
def scratch(server: ScratchServer) -> Iterator[Sandbox]:
    with created(server, "scratch") as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def busybox(server: ScratchServer) -> Iterator[Sandbox]:
    with created(server, "busybox") as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def musl(server: ScratchServer) -> Iterator[Sandbox]:
    with created(server, "musl") as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def distroless(server: ScratchServer) -> Iterator[Sandbox]:
    with created(server, "distroless") as sandbox:
        yield sandbox


def test_a_static_program_runs_where_nothing_else_is(server: ScratchServer, scratch: Sandbox) -> None:
    stdout, stderr, end = asyncio.run(run_program(server, scratch.sandbox_id, "/app"))
    assert (stdout, end) == (b"", Ended(exit_code=2))
    assert b"usage: aenv-guest daemon" in stderr


def test_files_are_written_and_read_where_nothing_else_is(scratch: Sandbox) -> None:
    scratch.files.write("/data/file", "x")
    assert scratch.files.read("/data/file") == "x"
    assert "nameserver" in scratch.files.read("/etc/resolv.conf")
    assert "localhost" in scratch.files.read("/etc/hosts")
    assert {"app", "dev", "proc", "sys", "run", "tmp"} <= {entry.name for entry in scratch.files.list("/")}


def test_a_missing_shell_is_an_error_that_names_it(scratch: Sandbox) -> None:
    with pytest.raises(InvalidArgumentException, match="/bin/bash"):
        scratch.commands.run("true")


def test_another_shell_stands_in_for_bash(busybox: Sandbox) -> None:
    result = busybox.commands.run("echo out; echo err >&2; echo $0 $USER $HOME; pwd", cwd="/bin")
    assert (result.stdout, result.stderr) == ("out\n/bin/sh root /root\n/bin\n", "err\n")
    with pytest.raises(CommandExitException) as end:
        busybox.commands.run("exit 7")
    assert end.value.exit_code == 7


def test_processes_are_fed_listed_and_killed_without_bash(busybox: Sandbox) -> None:
    handle = busybox.commands.run("cat", background=True, stdin=True)
    (listed,) = [process for process in busybox.commands.list() if process.pid == handle.pid]
    assert (listed.cmd, listed.args) == ("/bin/bash", ["-l", "-c", "cat"])
    busybox.commands.send_stdin(handle.pid, "fed")
    busybox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "fed"

    sleeper = busybox.commands.run("sleep 1000", background=True)
    assert busybox.commands.kill(sleeper.pid)
    with pytest.raises(CommandExitException) as end:
        sleeper.wait()
    assert end.value.error == "signal: killed"


def test_a_terminal_opens_without_bash(busybox: Sandbox) -> None:
    handle = busybox.pty.create(PtySize(rows=30, cols=100))
    busybox.pty.send_stdin(handle.pid, b"stty size; tty; exit 5\n")
    collected: list[bytes] = []
    with pytest.raises(CommandExitException) as end:
        handle.wait(on_pty=collected.append)
    shown = b"".join(collected)
    assert b"30 100" in shown
    assert b"/dev/pts/" in shown
    assert end.value.exit_code == 5


def test_files_belong_to_somebody_where_nobody_has_a_name(busybox: Sandbox) -> None:
    assert not busybox.files.exists("/etc/passwd")
    busybox.files.write("/data/file", "x", user="1234")
    entry = busybox.files.get_info("/data/file")
    assert (entry.owner, entry.group) == ("1234", "1234")
    assert busybox.commands.run("id -u; cat /data/file", user="1234").stdout == "1234\nx"
    watcher = busybox.files.watch_dir("/data")
    busybox.commands.run("echo y > /data/other")
    assert "other" in {event.name for event in watcher.get_new_events()}


def test_musl_programs_see_their_user(musl: Sandbox) -> None:
    assert musl.commands.run("who-am-i").stdout == "user /home/user\n"
    assert musl.commands.run("who-am-i", user="root").stdout == "root /root\n"
    assert musl.commands.run("echo $0; pwd").stdout == "/bin/sh\n/home/user\n"
    musl.files.write("notes", "x")
    entry = musl.files.get_info("/home/user/notes")
    assert (entry.owner, entry.size) == ("user", 1)


def test_a_program_runs_without_any_shell(server: ScratchServer, distroless: Sandbox) -> None:
    program = "import os, sys; print(os.getuid(), os.environ['HOME'], os.getcwd()); sys.exit(3)"
    stdout, stderr, end = asyncio.run(
        run_program(server, distroless.sandbox_id, "/usr/bin/python3", "-S", "-c", program)
    )
    assert (stdout, stderr, end.exit_code) == (b"65532 /home/nonroot /home/nonroot\n", b"", 3)
    with pytest.raises(InvalidArgumentException, match="could not start '/bin/bash': no such file"):
        distroless.commands.run("true")
    distroless.files.write("program.py", program)
    assert distroless.files.get_info("program.py").owner == "nonroot"


async def run_program(
    server: ScratchServer, sandbox_id: str, program: str, *arguments: str
) -> tuple[bytes, bytes, Ended]:
    """Run a program without a shell, as `aenv exec` does, and return both outputs and the end."""
    settings = ClientSettings(api_url=server.url, api_key=SecretStr(server.key))
    outputs = {Channel.STDOUT: b"", Channel.STDERR: b"", Channel.TERMINAL: b""}
    async with Transport(settings) as transport:
        known = await ApiClient(transport, settings).connect(SandboxId(sandbox_id))
        async with Daemon(transport, settings, known).open_start(Command(program, arguments)) as events:
            await events.read_start()
            async for event in events.read_events():
                if isinstance(event, Output):
                    outputs[event.channel] += event.content
                elif isinstance(event, Ended):
                    return outputs[Channel.STDOUT], outputs[Channel.STDERR], event
    raise AssertionError("the stream ended without an end event")
