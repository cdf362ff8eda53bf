import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from support import aenv
from support.aenv import Finished
from support.fake_server import Call, FakeServer

SANDBOX = "iabcdefghijklmnopqrst"
Run = Callable[..., Awaitable[Finished]]


def commands(server: FakeServer) -> list[list[str]]:
    starts = [json.loads(request.body[5:])["process"] for request in server.seen("POST /process.Process/Start")]
    return [[start["cmd"], *start["args"]] for start in starts]


@pytest.mark.parametrize(
    "words, line",
    [
        (["--", "ls | wc -l"], "ls | wc -l"),
        (["--", "echo", "a b", "$HOME", "it's"], """echo 'a b' '$HOME' 'it'"'"'s'"""),
        (["python3", "-c", "print(1)", "--user", "x"], "python3 -c 'print(1)' --user x"),
        (["--user", "root", "id", "-u"], "id -u"),
        (["--", "--help"], "--help"),
    ],
)
async def test_words_reach_the_login_shell_exactly(run: Run, server: FakeServer, words: list[str], line: str) -> None:
    finished = await run("exec", SANDBOX, *words)

    assert finished.code == 0, finished.stderr
    assert commands(server) == [["/bin/bash", "-l", "-c", line]]


async def test_options_become_the_process(run: Run, server: FakeServer) -> None:
    await run("exec", SANDBOX, "--env", "A=1", "--cwd", "/tmp", "--user", "root", "--timeout", "5m", "--", "true")

    (request,) = server.seen("POST /process.Process/Start")
    process = json.loads(request.body[5:])
    assert process["process"] | {"args": []} == {"cmd": "/bin/bash", "args": [], "envs": {"A": "1"}, "cwd": "/tmp"}
    assert process["stdin"] is False
    assert request.headers["Connect-Timeout-Ms"] == "300000"
    assert request.headers["Authorization"] == "Basic cm9vdDo="


@pytest.mark.parametrize(
    "exit_code, status, expected",
    [
        (3, None, 3),
        (-1, "signal: segmentation fault (core dumped)", 139),
    ],
)
async def test_the_exit_code_is_the_commands(
    run: Run, server: FakeServer, exit_code: int, status: str | None, expected: int
) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await call.end(exit_code, status)

    server.on_start = scenario

    assert await run("exec", SANDBOX, "--", "x") == Finished(expected, b"", b"")


async def test_ten_mebibytes_and_both_streams_come_out_unchanged(run: Run, server: FakeServer) -> None:
    piece = os.urandom(32 * 1024)

    async def scenario(call: Call) -> None:
        await call.start()
        for _ in range(320):
            await call.output("stdout", piece)
        await call.output("stderr", b"\x00\xff\r\n")
        await call.end()

    server.on_start = scenario
    finished = await run("exec", SANDBOX, "--", "x")

    assert (finished.code, finished.stderr) == (0, b"\x00\xff\r\n")
    assert hashlib.sha256(finished.stdout).digest() == hashlib.sha256(piece * 320).digest()


async def cat(server: FakeServer, call: Call) -> None:
    """Play `cat`."""
    await call.start()
    while (content := await server.process.inputs.get()) is not None:
        await call.output("stdout", content)
    await call.end()


async def test_piped_input_is_forwarded_with_its_end(run: Run, server: FakeServer) -> None:
    content = os.urandom(300_000)
    server.on_start = lambda call: cat(server, call)

    assert await run("exec", SANDBOX, "--", "cat", stdin=content) == Finished(0, content, b"")


async def test_a_file_is_forwarded_too(server: FakeServer, environment: dict[str, str], tmp_path: Path) -> None:
    server.on_start = lambda call: cat(server, call)
    path = tmp_path / "input"
    path.write_bytes(b"from a file")

    with path.open("rb") as file:
        async with (
            aenv.started("exec", SANDBOX, "--", "cat", environment=environment, stdin=file.fileno()) as child,
            asyncio.timeout(30),
        ):
            stdout, _ = await child.communicate()

    assert stdout == b"from a file"


async def test_output_comes_while_the_command_still_runs(server: FakeServer, environment: dict[str, str]) -> None:
    server.on_start = lambda call: cat(server, call)

    async with (
        aenv.started("exec", SANDBOX, "--", "cat", environment=environment, stdin=asyncio.subprocess.PIPE) as child,
        asyncio.timeout(30),
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        for line in (b"one\n", b"two\n"):
            child.stdin.write(line)
            assert await child.stdout.readexactly(4) == line
        child.stdin.close()
        assert await child.wait() == 0


async def test_stdin_no_leaves_the_pipe_alone(run: Run, server: FakeServer) -> None:
    finished = await run("exec", SANDBOX, "--stdin", "no", "--", "x", stdin=b"unread")

    assert finished.code == 0
    assert json.loads(server.seen("POST /process.Process/Start")[0].body[5:])["stdin"] is False
    assert server.process.inputs.empty()


async def test_a_process_that_stops_reading_ends_the_input_quietly(run: Run, server: FakeServer) -> None:
    route = "POST /process.Process/SendInput"
    server.answer(route, 500, {"code": "internal", "message": "stdin is closed"})

    async def scenario(call: Call) -> None:
        await call.start()
        await server.arrival(route)
        await call.end(4)

    server.on_start = scenario

    assert await run("exec", SANDBOX, "--", "head", stdin=b"x" * 200_000) == Finished(4, b"", b"")


async def test_input_that_is_lost_ends_the_command_loudly(run: Run, server: FakeServer) -> None:
    server.answer("POST /process.Process/SendInput", 503, {"code": 503, "message": "overloaded"})

    async def scenario(call: Call) -> None:
        await call.start()
        await server.process.signals.get()
        await call.end(-1, "signal: killed")

    server.on_start = scenario
    finished = await run("exec", SANDBOX, "--", "cat", stdin=b"x")

    assert (finished.code, server.process.group_signals.get_nowait()) == (1, "KILL")
    assert b"overloaded" in finished.stderr


async def lacking(programs: set[str], call: Call) -> None:
    program = call.message["process"]["cmd"]
    if program in programs:
        await call.fail("invalid_argument", f"fork/exec {program}: no such file or directory")
        return
    await call.start()
    await call.end()


@pytest.mark.parametrize(
    "missing, words, started, note",
    [
        ({"/bin/bash"}, ["a | b"], ["/bin/sh", "-c", "a | b"], b"/bin/sh"),
        ({"/bin/bash"}, ["tool", "a b"], ["tool", "a b"], b"without a shell"),
        ({"/bin/bash", "/bin/sh"}, ["/tool"], ["/tool"], b"without a shell"),
    ],
)
async def test_an_image_without_bash_gets_the_next_best_and_a_note(
    run: Run, server: FakeServer, missing: set[str], words: list[str], started: list[str], note: bytes
) -> None:
    server.on_start = lambda call: lacking(missing, call)

    finished = await run("exec", SANDBOX, "--", *words)

    assert (finished.code, finished.stdout) == (0, b"")
    assert finished.stderr.startswith(b"aenv: the image has no /bin/bash")
    assert note in finished.stderr
    assert commands(server)[-1] == started


async def test_a_line_for_a_shell_fails_where_there_is_none(run: Run, server: FakeServer) -> None:
    server.on_start = lambda call: lacking({"/bin/bash", "/bin/sh"}, call)

    finished = await run("exec", SANDBOX, "--", "a | b")

    assert finished.code == 1
    assert b"neither /bin/bash nor /bin/sh" in finished.stderr


async def test_a_missing_directory_is_not_taken_for_a_missing_bash(run: Run, server: FakeServer) -> None:
    async def scenario(call: Call) -> None:
        await call.fail("invalid_argument", "cwd '/bin/bash' does not exist")

    server.on_start = scenario
    finished = await run("exec", SANDBOX, "--cwd", "/bin/bash", "--", "true")

    assert finished == Finished(1, b"", b"aenv: cwd '/bin/bash' does not exist\n")
    assert len(commands(server)) == 1


async def test_a_command_past_its_deadline_gives_124(run: Run, server: FakeServer) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await call.output("stdout", b"partial")
        await call.fail("deadline_exceeded", "timed out")

    server.on_start = scenario
    finished = await run("exec", SANDBOX, "--timeout", "2", "--", "sleep 9")

    assert finished == Finished(124, b"partial", b"aenv: the command did not end within 2 s and was killed\n")


async def test_a_reconnection_is_told_because_output_may_be_missing(run: Run, server: FakeServer) -> None:
    async def cut(call: Call) -> None:
        await call.start()
        await call.output("stdout", b"before ")
        call.drop()

    async def again(call: Call) -> None:
        await call.start()
        await call.output("stdout", b"after")
        await call.end(7)

    server.on_start, server.on_connect = cut, again
    finished = await run("exec", SANDBOX, "--", "x")

    assert (finished.code, finished.stdout) == (7, b"before after")
    assert finished.stderr == b"aenv: the connection broke and is back; output may be missing here\n"


async def test_a_sandbox_that_dies_under_the_command_is_an_error(run: Run, server: FakeServer) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await call.output("stdout", b"half")
        server.sandboxes.clear()
        call.drop()

    server.on_start = scenario
    finished = await run("exec", SANDBOX, "--", "x")

    assert (finished.code, finished.stdout) == (1, b"half")
    assert b"was killed, is paused, or reached its end of life" in finished.stderr


async def test_an_unknown_sandbox_is_an_error(run: Run) -> None:
    finished = await run("exec", "inothing", "--", "true")

    assert (finished.code, finished.stdout) == (1, b"")
    assert finished.stderr.startswith(b"aenv: cannot connect to sandbox inothing: ")


async def ends_by_group_signal(server: FakeServer, call: Call) -> None:
    """Play a program that says that it runs, and ends by itself when its group is interrupted."""
    await call.start()
    await call.output("stdout", b"running")
    name = await server.process.group_signals.get()
    await call.output("stdout", f" got {name}".encode())
    await call.end(0)


@pytest.mark.parametrize(
    "number, name, code",
    [(signal.SIGINT, b"INT", 130), (signal.SIGTERM, b"TERM", 143), (signal.SIGHUP, b"TERM", 129)],
)
async def test_local_signals_are_passed_on_and_give_the_exit_code(
    server: FakeServer, environment: dict[str, str], number: int, name: bytes, code: int
) -> None:
    server.on_start = lambda call: ends_by_group_signal(server, call)

    async with aenv.started("exec", SANDBOX, "--", "x", environment=environment) as child, asyncio.timeout(30):
        assert child.stdout is not None
        assert await child.stdout.readexactly(7) == b"running"
        child.send_signal(number)

        stdout, stderr = await child.communicate()

    assert (child.returncode, stdout, stderr) == (code, b" got " + name, b"")


async def test_a_second_ctrl_c_kills(server: FakeServer, environment: dict[str, str]) -> None:
    interrupted = asyncio.Event()
    server.group_signals_work = False

    async def scenario(call: Call) -> None:
        await call.start()
        await call.output("stdout", b"running")
        assert await server.process.signals.get() == "SIGNAL_SIGTERM"
        interrupted.set()
        assert await server.process.signals.get() == "SIGNAL_SIGKILL"
        await call.end(-1, "signal: killed")

    server.on_start = scenario
    async with aenv.started("exec", SANDBOX, "--", "x", environment=environment) as child, asyncio.timeout(30):
        assert child.stdout is not None
        await child.stdout.readexactly(7)
        child.send_signal(signal.SIGINT)
        await interrupted.wait()
        child.send_signal(signal.SIGINT)

        assert await child.wait() == 130


async def test_ctrl_c_ends_also_when_nothing_answers_any_more(server: FakeServer, environment: dict[str, str]) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await call.output("stdout", b"running")
        await asyncio.Event().wait()

    server.on_start = scenario
    async with aenv.started("exec", SANDBOX, "--", "x", environment=environment) as child, asyncio.timeout(30):
        assert child.stdout is not None
        await child.stdout.readexactly(7)
        child.send_signal(signal.SIGINT)
        await server.process.group_signals.get()
        child.send_signal(signal.SIGINT)

        assert await child.wait() == 130


async def test_a_reader_that_goes_away_ends_the_command(server: FakeServer, environment: dict[str, str]) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        while server.process.signals.empty():
            await call.output("stdout", b"y\n" * 1000)
            await asyncio.sleep(0)

    server.on_start = scenario
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    child = await asyncio.create_subprocess_exec(
        *aenv.arguments(("exec", SANDBOX, "--", "yes")), env=environment, stdout=write_end
    )
    os.close(write_end)
    async with asyncio.timeout(30):
        assert await asyncio.to_thread(os.read, read_end, 4) == b"y\ny\n"
        os.close(read_end)

        assert await child.wait() == 141
    assert server.process.signals.get_nowait() == "SIGNAL_SIGKILL"
