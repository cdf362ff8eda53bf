"""`exec_rate`: round trips of `/bin/true`, 1, 16 and 64 at a time, against a loop inside the guest that starts it."""

import asyncio
import time

from bench.guest_floor import Guest
from bench.measure import Measurement, alone, compare
from bench.node import BenchServer

_WARM_UP, _CALLS, _ROUNDS = 20, 128, 3
_PARALLEL = (1, 16, 64)
_LOOP = f"""
import os
for _ in range({_CALLS}):
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {{}}), 0)
"""
_NOTHING = "import os"


async def measure(server: BenchServer) -> list[Measurement]:
    """Alternate all ways, so that what else the machine does falls on all of them."""
    floor: list[float] = []
    rates: dict[int, list[float]] = {count: [] for count in _PARALLEL}
    latencies: dict[int, list[float]] = {count: [] for count in _PARALLEL}
    async with Guest.created(server) as guest:
        for _ in range(_WARM_UP):
            await guest.envd.run("/bin/true")
        for _ in range(_ROUNDS):
            floor.append(await _floor_rate(guest))
            for count in _PARALLEL:
                rate, samples = await _rate(guest, count)
                rates[count].append(rate)
                latencies[count] += samples
    where = f"straight to the guest, {server.accelerator}, 2 vCPU; floor: posix_spawn and wait in a loop in the guest"
    rows = [compare("exec_rate", "calls/s", rates[1], floor, f"1 at a time, {where}")]
    rows += [
        compare(f"exec_rate_{count}", "calls/s", rates[count], floor, f"{count} at a time, {where}")
        for count in _PARALLEL[1:]
    ]
    rows += [
        alone(f"exec_latency_{count}", "ms", latencies[count], f"{count} at a time, {where}") for count in _PARALLEL
    ]
    return rows


async def _floor_rate(guest: Guest) -> float:
    """Return how many programs per second the guest starts by itself, without the time that Python needs to start."""
    empty = await _seconds(guest, _NOTHING)
    return _CALLS / (await _seconds(guest, _LOOP) - empty)


async def _seconds(guest: Guest, program: str) -> float:
    begin = time.perf_counter()
    await guest.envd.run("/usr/bin/python3", "-c", program)
    return time.perf_counter() - begin


async def _rate(guest: Guest, count: int) -> tuple[float, list[float]]:
    samples: list[float] = []

    async def work() -> None:
        for _ in range(_CALLS // count):
            begin = time.perf_counter()
            await guest.envd.run("/bin/true")
            samples.append((time.perf_counter() - begin) * 1000)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(work())
    seconds = time.perf_counter() - begin
    return len(samples) / seconds, samples
