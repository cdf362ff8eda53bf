"""The console's line reads at a bounded pace, from the right monitor only, and misses nothing at its end."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentenv.base import aio
from agentenv.vmm.console import ConsoleLog
from agentenv.vmm.qemu.console_socket import ConsoleSocket
from support.clock import FakeClock, settle

RATE = 4096


@dataclass(frozen=True, slots=True)
class Line:
    """A console's line with the test at the guest's end of it."""

    path: Path
    listening: ConsoleSocket
    log: ConsoleLog
    clock: FakeClock
    supervisor: aio.Supervisor

    def connect(self) -> socket.socket:
        guest = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        guest.connect(str(self.path))
        guest.setblocking(False)
        return guest


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    clock, supervisor = FakeClock(), aio.Supervisor()
    log = ConsoleLog(tmp_path / "console.log", 1024 * 1024)
    path = tmp_path / "console.sock"
    path.write_text("what a killed server left")
    listening = ConsoleSocket(path, owner=os.getuid(), console=log, bytes_per_second=RATE, clock=clock)
    yield Line(path, listening, log, clock, supervisor)
    await supervisor.stop()
    listening.close()
    listening.close()
    log.close()
    assert not path.exists()


def _fill(guest: socket.socket) -> int:
    """Send until nothing more fits between us, and return how much did."""
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += guest.send(b"x" * RATE)
    return sent


async def _until_idle() -> None:
    # Sockets need turns of the loop with its selector, not only ready callbacks.
    for _ in range(20):
        await asyncio.sleep(0.001)
    await settle()


async def test_output_of_both_connections_of_a_guest_is_kept(line: Line) -> None:
    line.supervisor.start("serve", line.listening.serve(os.getpid()))

    for words in (b"first life\n", b"second life\n"):
        guest = line.connect()
        guest.sendall(words)
        guest.close()
        await _until_idle()

    assert line.log.tail(100) == "first life\nsecond life\n"
    assert line.path.stat().st_mode & 0o777 == 0o600


async def test_flood_is_read_at_the_rate_and_fills_the_guests_side(line: Line) -> None:
    line.supervisor.start("serve", line.listening.serve(os.getpid()))
    guest = line.connect()
    sent = _fill(guest)
    await _until_idle()
    at_once = len(line.log.tail(sent))
    for _ in range(2):
        await line.clock.advance(1)
        await _until_idle()
    later = len(line.log.tail(sent))
    guest.close()

    assert at_once <= RATE, "no more than the burst"
    assert later - at_once <= 2 * RATE + RATE
    assert sent > 10 * RATE, "the rest waits at the guest's cost"


async def test_rest_of_a_dead_guest_is_taken_without_its_pace(line: Line) -> None:
    serving = line.supervisor.start("serve", line.listening.serve(os.getpid()))
    guest = line.connect()
    guest.sendall(b"x" * 10 * RATE + b"the last word")
    await _until_idle()
    serving.cancel()
    await asyncio.wait((serving,))
    guest.close()

    line.listening.drain_nowait(os.getpid())

    assert line.log.tail(13) == "the last word"


async def test_guest_that_died_before_we_looked_is_heard(line: Line) -> None:
    guest = line.connect()
    guest.sendall(b"short life\n")
    guest.close()

    line.listening.drain_nowait(os.getpid())

    assert line.log.tail(100) == "short life\n"


async def test_another_process_is_turned_away(line: Line) -> None:
    line.supervisor.start("serve", line.listening.serve(os.getpid() + 1))
    guest = line.connect()
    await _until_idle()

    assert guest.recv(1) == b"", "the line was closed"
    guest.close()


async def test_end_is_taken_in_also_when_no_descriptor_is_left(line: Line) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_number = os.dup(0)
    os.close(next_number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_number, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(0)
        line.listening.drain_nowait(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
