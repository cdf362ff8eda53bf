"""One server from start to stop: takes its home, builds a node, opens the door, and undoes all of it in reverse."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

from agentenv.api.server import ApiServer
from agentenv.base import aio, log
from agentenv.base.clock import SystemClock
from agentenv.main import keys
from agentenv.main.claim import HostClaim
from agentenv.main.home import Home, HomeLock
from agentenv.main.keys import KeyRing
from agentenv.main.node import open_node
from agentenv.main.open_files import raise_limit
from agentenv.main.settings import Settings
from agentenv.proxy.carrier import Carrier

_log = log.get("main")


async def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Run a server until SIGTERM or SIGINT; `announce` is called with its address when it takes requests.

    Raises what stands in the way of a start: `HomeInUse`, `PrefixInUse`, `GuestNotProvisioned`, `NoDriver`, ...
    """
    stopped = _signalled()
    raise_limit(connections=settings.api.connection_limit, sandboxes=settings.orchestrator.max_sandboxes)
    async with AsyncExitStack() as stack:
        home = Home(settings.home)
        home.make()
        stack.callback(HomeLock(home).release)
        stack.callback(HostClaim(settings.network).release)
        ring = KeyRing([keys.obtain(home)])
        proxy = Carrier(settings.proxy)
        stack.push_async_callback(proxy.stop)
        node = await stack.enter_async_context(open_node(settings, home, SystemClock(), cut=proxy.cut))
        api = ApiServer(node.service, proxy, ring, settings.api)
        stack.push_async_callback(api.stop)
        host, port = (await api.start())[0]
        announce(f"http://{_reachable(host)}:{port}")
        await stopped.wait()
        _log.info("server_stopping", detach=settings.server.detach_on_stop)
        async with aio.bounded_cleanup(settings.server.stop_timeout_seconds):
            await stack.aclose()


def _signalled() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set, from now on, so that one during the start is not lost."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event


def _reachable(host: str) -> str:
    """Return an address that a client on this machine can use for one that a server listens on."""
    return "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host  # noqa: S104 - compared, not bound
