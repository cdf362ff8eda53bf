"""Runs inside of a guest: writes blocks that carry their own checksums, buffered and past the cache, and reads back.

usage: disk_workload.py SECONDS; prints `verified N`, or raises at the first block that is not what was written.
"""

import hashlib
import mmap
import os
import random
import sys
import time
from pathlib import Path

BLOCK = 64 * 1024
BLOCKS = 256


def content(number: int, generation: int) -> bytes:
    seed = hashlib.sha256(f"{number} {generation}".encode()).digest()
    return (seed * (BLOCK // len(seed)))[: BLOCK - 32] + seed


def main(seconds: float) -> None:
    chance = random.Random(7)
    deadline = time.monotonic() + seconds
    written: dict[tuple[str, int], int] = {}
    verified = 0
    buffer = mmap.mmap(-1, BLOCK)
    files = {
        "buffered": os.open("/buffered", os.O_RDWR | os.O_CREAT),
        "direct": os.open("/direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT),
    }
    generation = 0
    while time.monotonic() < deadline:
        generation += 1
        for name, descriptor in files.items():
            number = chance.randrange(BLOCKS)
            buffer[:] = content(number, generation)
            assert os.pwrite(descriptor, buffer, number * BLOCK) == BLOCK
            written[name, number] = generation
        if generation % 16 == 0:
            os.fsync(files["buffered"])
            os.posix_fadvise(files["buffered"], 0, 0, os.POSIX_FADV_DONTNEED)
            for (name, number), then in chance.sample(sorted(written.items()), min(16, len(written))):
                verify(files[name], buffer, name, number, then)
                verified += 1
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    for (name, number), then in written.items():
        verify(files[name], buffer, name, number, then)
        verified += 1
    print("verified", verified)


def verify(descriptor: int, buffer: mmap.mmap, name: str, number: int, generation: int) -> None:
    assert os.preadv(descriptor, [buffer], number * BLOCK) == BLOCK, f"{name} {number}: short read"
    assert buffer[:] == content(number, generation), f"{name} {number}: not what was written"


if __name__ == "__main__":
    main(float(sys.argv[1]))
