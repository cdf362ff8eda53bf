"""Starts and stops the door: one port for control plane and data plane."""

import asyncio

from aiohttp import web

from agentenv.api.connection import ConnectionFactory
from agentenv.api.controlplane import ControlPlane
from agentenv.api.dataplane import DataPlane
from agentenv.api.front import Front
from agentenv.api.keys import KeyRing
from agentenv.api.settings import ApiSettings
from agentenv.base import log
from agentenv.orchestrator.base import Orchestrator
from agentenv.proxy.base import Proxy

_log = log.get("api")
_BACKLOG = 1024
_UNWIND_SECONDS = 1.0


class ApiServer:
    """The HTTP server of a node."""

    def __init__(self, orchestrator: Orchestrator, proxy: Proxy, keys: KeyRing, settings: ApiSettings) -> None:
        self._settings = settings
        self._proxy = proxy
        self._front = Front(ControlPlane(orchestrator, keys, settings), DataPlane(orchestrator, proxy), settings)
        self._runner: web.ServerRunner | None = None

    async def start(self) -> list[tuple[str, int]]:
        """Listen, and return the addresses that were bound."""
        assert self._runner is None, "an ApiServer starts once"
        self._runner = web.ServerRunner(
            ConnectionFactory(self._front.answer, self._settings),
            shutdown_timeout=self._settings.shutdown_grace_seconds + _UNWIND_SECONDS,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.host, self._settings.port, backlog=_BACKLOG)
        await site.start()
        addresses = [(str(address[0]), int(address[1])) for address in self._runner.addresses]
        _log.info("api_started", addresses=[f"{host}:{port}" for host, port in addresses])
        return addresses

    async def stop(self) -> None:
        """Take no more connections, give requests under way their grace, then end them."""
        if self._runner is None:
            return
        grace_seconds = self._settings.shutdown_grace_seconds
        # Streams into sandboxes have no end of their own; cutting them lets aiohttp's wait end with the grace.
        cut = asyncio.get_running_loop().call_later(grace_seconds, self._proxy.cut_all)
        await self._runner.cleanup()
        cut.cancel()
        self._runner = None
        await self._proxy.stop()
        _log.info("api_stopped")
