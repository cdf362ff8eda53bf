"""The implementation of the seam: lanes to the guests, and an exchange for each request."""

from time import monotonic

from aiohttp import web

from agentenv.base import metrics
from agentenv.base.aio import Supervisor
from agentenv.base.errors import AgentEnvError
from agentenv.proxy.base import Target
from agentenv.proxy.exchange import Exchange
from agentenv.proxy.lanes import Lanes
from agentenv.proxy.settings import ProxySettings

_seconds = metrics.histogram("aenv_proxy_exchange_seconds", "Duration of a carried request, to its last byte.")
_failures = metrics.counter("aenv_proxy_exchange_failures", "Requests that got no answer from a guest.", ("reason",))
_open = metrics.gauge("aenv_proxy_exchanges_open", "Requests and streams being carried now.")


class Carrier:
    """The `Proxy` of this process."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._lanes = Lanes(settings)
        self._supervisor = Supervisor()

    async def carry(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Carry one exchange to its end and return what aiohttp needs to go on."""
        begin = monotonic()
        _open.inc()
        try:
            lane = self._lanes.enter(target)
            try:
                return await Exchange(request, target, lane, self._settings).run(self._supervisor)
            finally:
                self._lanes.leave(target.owner, lane)
        except AgentEnvError as error:
            _failures.labels(reason=error.code).inc()
            raise
        finally:
            _open.dec()
            _seconds.observe(monotonic() - begin)

    def cut(self, owner: str) -> None:
        """End every connection to the guest of `owner` now."""
        self._lanes.cut(owner)

    def cut_all(self) -> None:
        """End every connection to every guest now."""
        self._lanes.cut_all()

    async def stop(self) -> None:
        """End everything."""
        self._lanes.cut_all()
        await self._supervisor.stop()
