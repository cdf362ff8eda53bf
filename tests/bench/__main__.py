"""`make bench`: measures against floors taken in the same run, and writes build/bench.json."""

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Network
from pathlib import Path

import aiohttp
import click

from agentenv.main.demo.scratch import scratch_home, scratch_server
from bench import (
    boot_cold,
    clone_pss,
    disk,
    exec_rate,
    exec_rtt,
    frozen,
    guest_download,
    guest_memory,
    guest_stdout,
    guest_upload,
    layer_open,
    layer_seal,
)
from bench.measure import Measurement, show, write
from bench.node import BenchServer
from support.server import prepared_home, settings_for_tests

BENCHES: dict[str, Callable[[BenchServer], Awaitable[list[Measurement]]]] = {
    "boot_cold": boot_cold.measure,
    "disk": disk.measure,
    "clone_pss": clone_pss.measure,
    "exec_rtt": exec_rtt.measure,
    "exec_rate": exec_rate.measure,
    "frozen_10mb": frozen.of(10),
    "frozen_100mb": frozen.of(100),
    "frozen_400mb": frozen.of(400),
    "guest_download": guest_download.measure,
    "guest_memory": guest_memory.measure,
    "guest_stdout": guest_stdout.measure,
    "guest_upload": guest_upload.measure,
    "layer_open": layer_open.measure,
    "layer_seal": layer_seal.measure,
    "second_snapshot_bytes": frozen.measure_second,
}
_OUTPUT = Path("build/bench.json")


@click.command()
@click.option("--only", default="", help="Names of benches, separated by commas; default: all.")
def bench(only: str) -> None:
    """Measure, print a table and write build/bench.json."""
    names = [name for name in only.split(",") if name] or list(BENCHES)
    if unknown := [name for name in names if name not in BENCHES]:
        raise click.UsageError(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    show(asyncio.run(_measure(names)))


async def _measure(names: list[str]) -> list[Measurement]:
    settings = settings_for_tests(prefix="aenvbench", network=IPv4Network("10.208.0.0/24"), uid_base=370_000)
    measurements: list[Measurement] = []
    with scratch_home(prepared_home(), "bench") as home, scratch_server(home, settings) as server:
        async with aiohttp.ClientSession() as session:
            target = BenchServer(server, settings, session)
            for name in names:
                found = await BENCHES[name](target)
                write(found, _OUTPUT)  # at once: a bench that fails must not take the others with it
                measurements += found
    return measurements


if __name__ == "__main__":
    bench()
