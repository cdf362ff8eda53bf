"""`guest_download`: a file of 256 MiB through the daemon, against `cat` of it on a plain connection."""

from bench.guest_floor import STREAM_BYTES, Guest, rate
from bench.measure import Measurement, compare
from bench.node import BenchServer

_ROUNDS = 3
_PATH = "/var/tmp/download"


async def measure(server: BenchServer) -> list[Measurement]:
    """Alternate both, after one round of warming up."""
    ours: list[float] = []
    floor: list[float] = []
    async with Guest.created(server) as guest:
        await guest.envd.run("/usr/bin/truncate", "-s", str(STREAM_BYTES), _PATH)
        for turn in range(_ROUNDS + 1):
            seconds = await guest.envd.download(_PATH)
            plain_seconds = await guest.receive_plain(f"cat {_PATH}")
            if turn:
                ours.append(rate(seconds))
                floor.append(rate(plain_seconds))
    conditions = f"256 MiB of a sparse file, straight to the guest, {server.accelerator}, 2 vCPU"
    return [compare("guest_download", "MiB/s", ours, floor, conditions)]
