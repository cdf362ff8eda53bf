"""`boot_cold`: from the request to the first command's answer, against bare QEMU booting the same guest."""

import time

from bench.bare import BareQemu
from bench.envd import Envd
from bench.measure import Measurement, compare
from bench.node import BenchServer

_BOOTS = 7


async def measure(server: BenchServer) -> list[Measurement]:
    """Alternate whole creations and bare boots; the first of each warms the page cache and does not count."""
    ours: list[float] = []
    floor: list[float] = []
    async with BareQemu.opened(server.settings, server.home) as bare:
        for turn in range(_BOOTS + 1):
            created, booted = await _create_seconds(server), await bare.boot_seconds()
            if turn:
                ours.append(created)
                floor.append(booted)
    conditions = (
        f"one at a time, {server.accelerator}, 2 vCPU, 512 MiB, base image in the page cache, network slot ready; "
        "until /bin/true has answered"
    )
    return [compare("boot_cold", "s", ours, floor, conditions)]


async def _create_seconds(server: BenchServer) -> float:
    begin = time.perf_counter()
    sandbox = await server.create()
    async with Envd(server.url, sandbox.token, server.routing(sandbox.id)) as envd:
        await envd.run("/bin/true")
    seconds = time.perf_counter() - begin
    await server.kill(sandbox.id)
    return seconds
