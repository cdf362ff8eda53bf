"""`disk_seq_read` and its kind: a disk of the block daemon's mount against a plain file on the same file system."""

import json
import os
import platform
from pathlib import Path

from agentenv.base import process
from bench.measure import Measurement, compare
from bench.node import BenchServer

_ROUNDS, _SECONDS = 5, 1.0
_BUILD_SECONDS, _RUN_SECONDS = 1800, 900


async def measure(_server: BenchServer) -> list[Measurement]:
    """Build daemon and load from this checkout, and let the load alternate between both files."""
    target = f"{platform.machine()}-unknown-linux-gnu"
    environment = {**os.environ, "RUSTFLAGS": "-C target-feature=+crt-static"}
    build = ["cargo", "build", "--locked", "--release", "-p", "aenv-blockd", "--bins", "--example", "disk_bench"]
    places = ["--target", target, "--target-dir", "target/static"]
    await process.run([*build, *places], timeout_seconds=_BUILD_SECONDS, environment=environment)
    built = Path("target/static", target, "release").resolve()
    load: list[str | Path] = [
        built / "examples" / "disk_bench",
        built / "aenv-blockd",
        Path.cwd(),
        str(_ROUNDS),
        str(_SECONDS),
    ]
    result = await process.run(load, timeout_seconds=_RUN_SECONDS)
    return [
        compare(row["name"], row["unit"], row["ours"], row["floor"], _conditions(row["layers"]))
        for row in json.loads(result.stdout)
    ]


def _conditions(layers: int) -> str:
    return (
        f"O_DIRECT, 512 MiB, {_SECONDS:g} s, writes end with fdatasync; {layers} sealed layer(s) below the writable"
        " one. Floor: the same on a plain file. Ours may be answered from the page cache of the layers"
    )
