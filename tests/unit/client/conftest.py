from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from agentenv.base.ids import SandboxId
from agentenv.client.api import ApiClient
from agentenv.client.base import Sandbox
from agentenv.client.daemon import Daemon
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport
from support.fake_server import API_KEY, FakeServer
from support.instant_clock import InstantClock

SANDBOX = SandboxId("iabcdefghijklmnopqrst")


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer().running() as server:
        server.add_sandbox(SANDBOX)
        yield server


@pytest.fixture
def settings(server: FakeServer) -> ClientSettings:
    return ClientSettings(
        api_url=server.url, api_key=SecretStr(API_KEY), request_timeout_seconds=20, silence_limit_seconds=20
    )


@pytest.fixture
async def transport(settings: ClientSettings) -> AsyncIterator[Transport]:
    async with Transport(settings) as transport:
        yield transport


@pytest.fixture
def clock() -> InstantClock:
    return InstantClock()


@pytest.fixture
def api(transport: Transport, settings: ClientSettings, clock: InstantClock) -> ApiClient:
    return ApiClient(transport, settings, clock)


@pytest.fixture
async def sandbox(api: ApiClient) -> Sandbox:
    return await api.connect(SANDBOX)


@pytest.fixture
def daemon(transport: Transport, settings: ClientSettings, sandbox: Sandbox) -> Daemon:
    return Daemon(transport, settings, sandbox)
