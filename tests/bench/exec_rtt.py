"""`exec_rtt`: `/bin/true` through the API port against the same call straight to the guest."""

import time

from bench.envd import Envd
from bench.measure import Measurement, compare
from bench.node import BenchServer

_WARM_UP, _CALLS = 20, 300


async def measure(server: BenchServer) -> list[Measurement]:
    """Alternate the two ways, so that what else the machine does falls on both."""
    sandbox = await server.create()
    direct_url = f"http://{server.slot_address(sandbox.id)}:49983"
    async with (
        Envd(server.url, sandbox.token, server.routing(sandbox.id)) as through,
        Envd(direct_url, sandbox.token) as direct,
    ):
        ways = {"through": through, "direct": direct}
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(_WARM_UP + _CALLS):
            for name, way in ways.items():
                begin = time.perf_counter()
                await way.run("/bin/true")
                if turn >= _WARM_UP:
                    samples[name].append((time.perf_counter() - begin) * 1000)
    await server.kill(sandbox.id)
    conditions = f"one call at a time, connections kept, {server.accelerator}, 2 vCPU, after {_WARM_UP} calls"
    return [compare("exec_rtt", "ms", samples["through"], samples["direct"], conditions)]
