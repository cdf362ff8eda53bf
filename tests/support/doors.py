"""A whole HTTP door on loopback, in front of a fake orchestrator and the real proxy."""

from types import TracebackType
from typing import Self

from agentenv.api.server import ApiServer
from agentenv.api.settings import ApiSettings
from agentenv.orchestrator.base import Sandbox
from agentenv.proxy.carrier import Carrier
from agentenv.proxy.settings import ProxySettings
from support.fake_orchestrator import FakeOrchestrator
from support.wire import Peer

KEY = "right-key"


class OneKey:
    """A key ring with one key."""

    def accepts(self, key: str) -> bool:
        return key == KEY


class Door:
    """A started `ApiServer` and everything behind it."""

    def __init__(self, settings: ApiSettings | None = None, proxy: ProxySettings | None = None) -> None:
        self.orchestrator = FakeOrchestrator()
        self.carrier = Carrier(proxy or ProxySettings())
        base = settings or ApiSettings()
        self.settings = base.model_copy(update={"port": 0, "shutdown_grace_seconds": 0.01})
        self._server = ApiServer(self.orchestrator, self.carrier, OneKey(), self.settings)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connect(self) -> Peer:
        return await Peer.connect(self.port)

    def routing(self, sandbox: Sandbox, port: int) -> bytes:
        """Return the header lines that lead to a port of a sandbox."""
        return f"Host: door\r\nE2b-Sandbox-Id: {sandbox.id}\r\nE2b-Sandbox-Port: {port}\r\n".encode()

    async def __aenter__(self) -> Self:
        ((_, self.port),) = await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self._server.stop()
