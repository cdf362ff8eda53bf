"""Processes that outlive us: what they inherit, and when they count as ended."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentenv.base.process import CommandFailed, ProcessIdentity, identify, reap, spawn_detached


def _spawn(words: Sequence[str | Path], handed_over: Sequence[int] = ()) -> tuple[ProcessIdentity, int]:
    """Start a program and return it with the reading end of its standard error."""
    reading, writing = os.pipe()
    try:
        return spawn_detached(words, stderr=writing, handed_over=handed_over), reading
    finally:
        os.close(writing)


async def _finish(process: ProcessIdentity, reading: int) -> tuple[str, int | None]:
    await process.wait_ended()
    with os.fdopen(reading) as output:
        return output.read(), reap(process.pid)


async def test_child_has_its_own_session_and_only_what_it_was_handed() -> None:
    stray, kept = os.pipe()
    os.set_inheritable(stray, True)
    report = (
        "import os, sys\n"
        "descriptors = sorted(map(int, os.listdir('/proc/self/fd')))[:-1]\n"
        "print(os.getsid(0) == os.getpid(), descriptors, os.read(3, 9), file=sys.stderr)\n"
    )
    reading, writing = os.pipe()
    os.write(writing, b"handed")
    process, errors = _spawn((sys.executable, "-c", report), handed_over=(reading,))
    for descriptor in (stray, kept, reading, writing):
        os.close(descriptor)

    output, status = await _finish(process, errors)

    assert output == "True [0, 1, 2, 3] b'handed'\n"
    assert status == 0


async def test_handed_over_descriptors_may_have_each_others_numbers() -> None:
    pipes = [os.pipe() for _ in range(3)]
    for place, (_, writing) in enumerate(pipes):
        os.write(writing, str(place).encode())
    report = "import os,sys; print([os.read(number, 1) for number in (3, 4, 5)], file=sys.stderr)"
    process, errors = _spawn((sys.executable, "-c", report), handed_over=[pipes[place][0] for place in (2, 0, 1)])
    for ends in pipes:
        for descriptor in ends:
            os.close(descriptor)

    assert (await _finish(process, errors))[0] == "[b'2', b'0', b'1']\n"


async def test_program_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandFailed, match="no-such-program could not be started: No such file"):
        spawn_detached(("no-such-program",), stderr=2)


async def test_killed_process_has_ended_and_is_collected_once() -> None:
    process, errors = _spawn(("sleep", "600"))
    assert process.is_alive()

    process.kill()
    _, status = await _finish(process, errors)

    assert status is not None
    assert os.WTERMSIG(status) == 9
    assert reap(process.pid) is None
    assert not process.is_alive()
    process.kill()


async def test_process_lives_for_as_long_as_its_last_thread() -> None:
    # The first thread leaves alone, which makes the process a zombie in /proc while the other one runs on.
    program = (
        "import ctypes, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "sys.stderr.write('leaving'); sys.stderr.flush()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    process, errors = _spawn((sys.executable, "-c", program))
    os.read(errors, 100)
    while _state(process.pid) != "Z":
        await asyncio.sleep(0.01)

    assert process.is_alive()
    process.kill()
    _, status = await _finish(process, errors)
    assert status is not None


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


async def test_later_process_of_the_same_number_is_another() -> None:
    ours = identify(os.getpid())
    assert ours is not None
    earlier = ProcessIdentity(ours.pid, ours.start_ticks - 1)

    assert ours.is_alive()
    assert not earlier.is_alive()
    earlier.kill()
    await earlier.wait_ended()
