"""What takes too long, or cannot be seen, from outside: the verb's asynchronous part on a test's clock and pipes."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest
from pydantic import SecretStr

from agentenv.base.ids import SandboxId
from agentenv.cli import execution
from agentenv.cli.execution import Request, Streams, execute
from agentenv.cli.server import Server
from agentenv.client.api import ApiClient
from agentenv.client.errors import CommandTimedOut
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport
from support.clock import FakeClock
from support.fake_server import API_KEY, Call, FakeServer

SANDBOX = SandboxId("iabcdefghijklmnopqrst")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def opened(server: FakeServer, clock: FakeClock) -> AsyncIterator[Server]:
    settings = ClientSettings(api_url=server.url, api_key=SecretStr(API_KEY))
    async with Transport(settings) as transport:
        yield Server(settings, transport, ApiClient(transport, settings), clock)


@pytest.fixture
def streams() -> Iterator[Streams]:
    descriptor = os.open(os.devnull, os.O_WRONLY)
    yield Streams(None, descriptor, descriptor)
    os.close(descriptor)


async def test_the_sandbox_is_kept_alive_while_a_command_runs(
    opened: Server, server: FakeServer, clock: FakeClock, streams: Streams
) -> None:
    prolonged = f"POST /sandboxes/{SANDBOX}/refreshes"
    server.answer(prolonged, 500, b"a failure is not the command's business")

    async def scenario(call: Call) -> None:
        await call.start()
        await server.arrival(prolonged)
        await call.end(3)

    server.on_start = scenario
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        running = group.create_task(execute(opened, Request(SANDBOX, ("x",), {}), streams))
        await server.arrival("POST /process.Process/Start")
        while not running.done():
            await clock.advance(20)

    assert running.result() == 3
    assert server.seen(prolonged)[0].document == {"duration": 60}


async def test_a_deadline_that_the_daemon_does_not_enforce_is_enforced_from_here(
    opened: Server, server: FakeServer, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(call: Call) -> None:
        await call.start()
        await server.process.signals.get()

    server.on_start = scenario
    monkeypatch.setattr(execution, "DEADLINE_GRACE_SECONDS", -0.95)

    with pytest.raises(CommandTimedOut, match="did not end within 1 s"):
        await execute(opened, Request(SANDBOX, ("x",), {}, timeout_seconds=1), streams)

    assert server.process.group_signals.get_nowait() == "KILL"
