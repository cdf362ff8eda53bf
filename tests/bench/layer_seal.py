"""`layer_seal`: sealing a writable layer in place, against copying what was written to a file of its own."""

import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import agentenv_core as core
from bench.measure import Measurement, compare
from bench.node import BenchServer
from support.layers import Run, write_pair

_BLOCKS = 32_768
_DISK_BYTES = 16 << 30
_ROUNDS = 5


async def measure(_server: BenchServer) -> list[Measurement]:
    """Alternate both. Everything is durable before and after, so that none pays for the writes of the guest."""
    ours, floor = [], []
    for seed in range(_ROUNDS):
        with tempfile.TemporaryDirectory(dir=".") as place:
            directory = Path(place)
            # Scattered over the disk in the order of writing, so that no two runs can be joined.
            order = random.Random(seed).sample(range(0, _DISK_BYTES // 512, 16), _BLOCKS)
            runs = [Run(start, 8, 8 + 8 * number) for number, start in enumerate(order)]
            write_pair(directory / "data", directory / "index", runs, _DISK_BYTES)
            for name in ("data", "index"):
                _sync(directory / name)
            begin = time.perf_counter()
            _copy_durably(directory / "data", directory / "copy")
            middle = time.perf_counter()
            core.seal(directory, data="data", index="index", output="sealed")
            floor.append((middle - begin) * 1000)
            ours.append((time.perf_counter() - middle) * 1000)
    conditions = f"{_BLOCKS * 4096 >> 20} MiB in {_BLOCKS} scattered runs, flushed before, opening included"
    return [compare("layer_seal", "ms", ours, floor, f"{conditions}. Floor: copying the data to a file, with fsync")]


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _copy_durably(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)
        os.fsync(written.fileno())
