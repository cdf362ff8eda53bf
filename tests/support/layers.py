"""Layers for tests: the golden vectors of the Rust crate, and disk images with runs of zeros."""

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

VECTORS = Path(__file__).resolve().parents[2] / "crates" / "aenv-layers" / "tests" / "vectors"
BLOCK_BYTES = 4096
HEADER_BYTES = 4096
_ENTRY = struct.Struct("<QQ")
# The flag of zeros, and the first sector of data: readers want a target within the file of these too.
_ZEROED = 1 << 55 | HEADER_BYTES // 512
# Offset of the index, number of its entries, size of the disk.
_PLACE_OF_INDEX = struct.Struct("<QQQ")


def write_image(path: Path, blocks: int, seed: int = 1) -> bytes:
    """Write a disk image of runs of data, of zeros and of holes, and return what it reads as."""
    dice = random.Random(seed)
    content = bytearray()
    with path.open("wb") as file:
        while len(content) < blocks * BLOCK_BYTES:
            run = min(dice.randint(1, 9) * BLOCK_BYTES, blocks * BLOCK_BYTES - len(content))
            kind = dice.choice(("data", "zeros", "hole"))
            piece = dice.randbytes(run) if kind == "data" else bytes(run)
            if kind == "hole":
                file.seek(run, 1)
            else:
                file.write(piece)
            content += piece
        file.truncate(len(content))
    return bytes(content)


@dataclass(frozen=True, slots=True)
class Run:
    """Sectors of a disk: `target` is where a file has their data, None where they are zeros."""

    start: int
    length: int
    target: int | None = None


def pack_index(runs: Iterable[Run]) -> bytes:
    """Return index entries as the format has them."""
    words = ((run.start | run.length << 50, _ZEROED if run.target is None else run.target) for run in runs)
    return b"".join(_ENTRY.pack(*pair) for pair in words)


def sealed_layer(runs: Iterable[Run], size_bytes: int) -> bytes:
    """Return a sealed layer of runs of zeros, over a disk of `size_bytes`."""
    empty = (VECTORS / "empty_sealed.bin").read_bytes()
    index = pack_index(runs)
    trailer = bytearray(empty[-HEADER_BYTES:])
    _PLACE_OF_INDEX.pack_into(trailer, 32, HEADER_BYTES, len(index) // _ENTRY.size, size_bytes)
    return empty[:HEADER_BYTES] + index + trailer


def write_pair(data: Path, index: Path, runs: Sequence[Run], size_bytes: int) -> None:
    """Write the two files of a writable layer; the data file has room for all that the runs point to."""
    for path, vector in ((data, "rw_data.bin"), (index, "rw_index.bin")):
        header = bytearray((VECTORS / vector).read_bytes()[:HEADER_BYTES])
        struct.pack_into("<Q", header, 48, size_bytes)
        path.write_bytes(header)
    with index.open("ab") as file:
        file.write(pack_index(runs))
    sectors = max(run.target + run.length for run in runs if run.target is not None)
    with data.open("ab") as file:
        for _ in range(sectors // 8 - 1):
            file.write(b"\x07" * BLOCK_BYTES)
