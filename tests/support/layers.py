"""Layers for tests: the golden vectors of the Rust crate, and disk images with runs of zeros."""

import random
from pathlib import Path

VECTORS = Path(__file__).resolve().parents[2] / "crates" / "aenv-layers" / "tests" / "vectors"
BLOCK_BYTES = 4096


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
