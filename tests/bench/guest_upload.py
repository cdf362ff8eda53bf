"""`guest_upload`: a file of 256 MiB through the daemon, against `cat` into it from a plain connection."""

from bench.guest_floor import STREAM_BYTES, Guest, rate
from bench.measure import Measurement, compare
from bench.node import BenchServer

_ROUNDS = 3
_PATH = "/var/tmp/upload"
# A file of its own: the daemon writes as root here, and the floor's program could not open that one.
_PLAIN_PATH = "/var/tmp/plain"


async def measure(server: BenchServer) -> list[Measurement]:
    """Alternate both, after one round of warming up. Both write over the file of the round before."""
    ours: list[float] = []
    floor: list[float] = []
    async with Guest.created(server) as guest:
        for turn in range(_ROUNDS + 1):
            seconds = await guest.envd.upload(_PATH, STREAM_BYTES)
            plain_seconds = await guest.send_plain(f"cat > {_PLAIN_PATH}")
            if turn:
                ours.append(rate(seconds))
                floor.append(rate(plain_seconds))
    conditions = f"256 MiB as octet-stream onto the disk, straight to the guest, {server.accelerator}, 2 vCPU"
    return [compare("guest_upload", "MiB/s", ours, floor, conditions)]
