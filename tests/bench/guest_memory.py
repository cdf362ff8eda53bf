"""`guest_memory`: what the daemon has resident when idle, and again after load, in the guest's own words."""

import asyncio

from bench.guest_floor import STREAM_BYTES, Guest
from bench.measure import Measurement, alone
from bench.node import BenchServer

_PROCESSES, _STREAMS = 256, 32
_SETTLE_SECONDS = 3
_RESIDENT = "awk '/^VmRSS/ {print $2}' /proc/$(pgrep -o -x aenv-guest)/status"


async def measure(server: BenchServer) -> list[Measurement]:
    """Read before and after many short processes, parallel streams and a large download."""
    async with Guest.created(server) as guest:
        before = await _resident_mib(guest)
        async with asyncio.TaskGroup() as group:
            for _ in range(_STREAMS):
                group.create_task(guest.envd.run("/bin/sh", "-c", "head -c 4M /dev/zero"))
        for _ in range(_PROCESSES):
            await guest.envd.run("/bin/true")
        await guest.envd.run("/usr/bin/truncate", "-s", str(STREAM_BYTES), "/var/tmp/file")
        await guest.envd.download("/var/tmp/file")
        await asyncio.sleep(_SETTLE_SECONDS)
        after = await _resident_mib(guest)
    load = f"{_STREAMS} streams of 4 MiB at once, {_PROCESSES} processes, a download of 256 MiB"
    return [
        alone("guest_memory_idle", "MiB", [before], "resident set of the daemon after the start"),
        alone("guest_memory_after_load", "MiB", [after], f"the same, {_SETTLE_SECONDS} s after {load}"),
    ]


async def _resident_mib(guest: Guest) -> float:
    return int(await guest.envd.output("/bin/sh", "-c", _RESIDENT)) / 1024
