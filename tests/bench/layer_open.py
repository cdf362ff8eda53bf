"""`layer_open`: opening 32 layers with a million index entries, every one checked, against reading the same bytes."""

import tempfile
import time
from pathlib import Path

import agentenv_core as core
from bench.measure import Measurement, compare
from bench.node import BenchServer
from support.layers import Run, sealed_layer

_LAYERS = 32
_ENTRIES = 1_000_000 // _LAYERS
_DISK_BYTES = 16 << 30
_ROUNDS = 15


async def measure(_server: BenchServer) -> list[Measurement]:
    """Alternate both; the files stay in the page cache."""
    with tempfile.TemporaryDirectory(dir=".") as place:
        step = _DISK_BYTES // 512 // _ENTRIES
        paths = [Path(place) / str(number) for number in range(_LAYERS)]
        for number, path in enumerate(paths):
            # No two entries are neighbours, or of the same length as the next.
            runs = (Run(at * step + number, 1 + at % 7) for at in range(_ENTRIES))
            path.write_bytes(sealed_layer(runs, _DISK_BYTES))
        ours, floor = [], []
        for _ in range(_ROUNDS):
            begin = time.perf_counter()
            for path in paths:
                core.inspect(path)
            middle = time.perf_counter()
            for path in paths:
                path.read_bytes()
            ours.append((middle - begin) * 1000)
            floor.append((time.perf_counter() - middle) * 1000)
    conditions = f"{_LAYERS} layers of {_ENTRIES} entries in the page cache, one after the other, indices not merged"
    return [compare("layer_open", "ms", ours, floor, f"{conditions}. Floor: reading the files")]
