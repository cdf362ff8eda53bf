"""Commands with a deadline, and processes that can be told from later ones of the same number."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest
import uvloop

from agentenv.base import process
from agentenv.base.errors import TimedOut
from agentenv.base.process import CommandFailed, ProcessIdentity


async def test_run_returns_both_streams() -> None:
    result = await process.run(["sh", "-c", "cat; echo no >&2"], stdin=b"yes")
    assert (result.stdout, result.stderr) == (b"yes", b"no\n")


def test_standard_input_can_be_opened_by_name_on_both_event_loops() -> None:
    async def read_by_name() -> bytes:
        return (await process.run(["cat", "/dev/stdin"], stdin=b"by name")).stdout

    assert asyncio.run(read_by_name()) == b"by name"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(read_by_name()) == b"by name"


async def test_a_failed_command_says_what_it_wrote() -> None:
    with pytest.raises(CommandFailed, match="sh ended with 3: the reason"):
        await process.run(["sh", "-c", "echo the reason >&2; exit 3"])


async def test_a_missing_program_is_named() -> None:
    with pytest.raises(CommandFailed, match="no-such-program could not be started"):
        await process.run(["/no-such-program"])


async def test_a_command_that_is_too_slow_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(TimedOut, match="sh did not end"):
        await process.run(["sh", "-c", f"sleep 60 & echo $! $$ > {pids}; wait"], timeout_seconds=0.3)

    for pid in map(int, pids.read_text().split()):
        identity = process.identify(pid)
        if identity is not None:
            await identity.wait_ended()
        assert identity is None or not identity.is_alive()


async def test_a_cancelled_command_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    running = asyncio.ensure_future(process.run(["sh", "-c", f"echo $$ > {pids}; exec sleep 60"]))
    while not (pids.exists() and pids.read_text()):
        await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert process.identify(int(pids.read_text())) is None


async def test_the_end_of_a_process_is_seen_at_once_and_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    identity = process.identify(child.pid)
    assert identity is not None
    assert identity.is_alive()

    waiting = asyncio.ensure_future(identity.wait_ended())
    await asyncio.sleep(0)
    identity.kill()
    await waiting

    assert not identity.is_alive()
    assert child.wait() == -signal.SIGKILL
    await identity.wait_ended()


def test_another_process_of_the_same_number_is_not_touched() -> None:
    mine = process.identify(os.getpid())
    assert mine is not None
    earlier = ProcessIdentity(mine.pid, mine.start_ticks - 1)

    assert not earlier.is_alive()
    earlier.kill()  # would end this test


def test_a_process_that_never_was_has_no_identity() -> None:
    assert process.identify(2**22 - 1) is None
