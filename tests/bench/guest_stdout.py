"""`guest_stdout`: 256 MiB of a command's output through the daemon, against `cat` of it on a plain connection.

A process's output goes through a pipe, so the floor's `cat` reads a pipe as well.
"""

import time

from bench.guest_floor import STREAM_BYTES, Guest, rate
from bench.measure import Measurement, compare
from bench.node import BenchServer

_ROUNDS = 3
_COMMAND = f"head -c {STREAM_BYTES} /dev/zero"


async def measure(server: BenchServer) -> list[Measurement]:
    """Alternate both, after one round of warming up."""
    ours: list[float] = []
    floor: list[float] = []
    async with Guest.created(server) as guest:
        for turn in range(_ROUNDS + 1):
            begin = time.perf_counter()
            await guest.envd.run("/bin/sh", "-c", _COMMAND)
            seconds = time.perf_counter() - begin
            plain_seconds = await guest.receive_plain(f"{_COMMAND} | cat")
            if turn:
                ours.append(rate(seconds))
                floor.append(rate(plain_seconds))
    conditions = f"256 MiB of zeros, floor `| cat`, straight to the guest, {server.accelerator}, 2 vCPU"
    return [compare("guest_stdout", "MiB/s", ours, floor, conditions)]
