import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import aenv
from support.aenv import Finished
from support.aenv_terminal import in_terminal
from support.fake_server import API_KEY, FakeServer
from support.guest_daemon import running_daemon

pytestmark = pytest.mark.host

SANDBOX = "iabcdefghijklmnopqrst"
EXEC = ("exec", SANDBOX, "--user", "root", "--cwd", "/", "--")


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """Return an environment in which sandbox traffic goes to a real daemon on this machine."""
    async with FakeServer().running() as server, running_daemon(tmp_path / "state") as daemon_url:
        server.add_sandbox(SANDBOX)
        yield aenv.environment(
            tmp_path, {"AENV_API_URL": server.url, "AENV_API_KEY": API_KEY, "AENV_SANDBOX_URL": daemon_url}
        )


def running_with(argument: str) -> list[int]:
    """Return the processes of this machine that have `argument` on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words and b"sleep" in words[0]:
            found.append(int(path.parent.name))
    return found


async def test_a_line_runs_in_bash(environment: dict[str, str]) -> None:
    finished = await aenv.run_aenv(*EXEC, "seq 3 | wc -l; echo $BASH; exit 6", environment=environment)

    assert finished == Finished(6, b"3\n/bin/bash\n", b"")


async def test_words_arrive_exactly(environment: dict[str, str]) -> None:
    words = ["a b", "$HOME", "it's", 'say "x"', "", "*", "line\nbreak", "ü"]

    finished = await aenv.run_aenv(*EXEC, "printf", "<%s>", *words, environment=environment)

    assert finished.stdout.decode() == "".join(f"<{word}>" for word in words)


async def test_input_reaches_the_command_to_its_end(environment: dict[str, str]) -> None:
    content = os.urandom(1024 * 1024)

    finished = await aenv.run_aenv(*EXEC, "sha256sum", environment=environment, stdin=content)

    assert finished.stdout.split()[0].decode() == hashlib.sha256(content).hexdigest()


async def test_a_signal_gives_its_exit_code(environment: dict[str, str]) -> None:
    assert (await aenv.run_aenv(*EXEC, "kill -SEGV $$", environment=environment)).code == 139


async def test_a_deadline_gives_124_and_leaves_nothing(environment: dict[str, str]) -> None:
    words = ("exec", SANDBOX, "--user", "root", "--timeout", "1", "--", "echo begun; sleep 86411; true")

    finished = await aenv.run_aenv(*words, environment=environment)

    assert (finished.code, finished.stdout) == (124, b"begun\n")
    assert running_with("86411") == []


async def test_ctrl_c_ends_the_command_with_its_children(environment: dict[str, str]) -> None:
    async with asyncio.timeout(60), aenv.started(*EXEC, "echo up; sleep 86412; true", environment=environment) as child:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"up\n"
        child.send_signal(signal.SIGINT)

        assert await child.wait() == 130
    assert running_with("86412") == []


async def test_a_terminal_is_a_real_one(environment: dict[str, str]) -> None:
    async with in_terminal("connect", SANDBOX, "--user", "root", environment=environment) as terminal:
        before = terminal.attributes()
        terminal.press(b"stty size; echo $TERM-$((40+2))\r")
        assert b"30 90" in await terminal.until(b"xterm-42")
        terminal.resize(100, 40)
        terminal.press(b"until stty size | grep '40 100'; do :; done\r")
        await terminal.until(b"40 100\r\n")
        terminal.press(b"sh -c 'echo job-$((1)); exec sleep 86413'\r")
        await terminal.until(b"job-1")
        terminal.press(b"\x03")
        terminal.press(b"exit 9\r")

        assert await terminal.end() == 9
        assert terminal.attributes() == before


async def test_leaving_a_terminal_by_force_ends_its_shell(environment: dict[str, str]) -> None:
    async with in_terminal("connect", SANDBOX, "--user", "root", environment=environment) as terminal:
        terminal.press(b"echo on-$((1)); exec sleep 86414\r")
        await terminal.until(b"on-1")
        terminal.child.send_signal(signal.SIGTERM)

        assert await terminal.end() == 143
    assert running_with("86414") == []
