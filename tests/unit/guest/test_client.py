"""The host's line to a guest that may say anything, or nothing."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import IPv4Address
from typing import Any

import pytest
from aiohttp import web

from agentenv.guest.base import GuestAddress, GuestSetup
from agentenv.guest.client import GuestClient
from agentenv.guest.errors import GuestRefused, GuestUnreachable
from support.clock import START, FakeClock

METRICS = {
    "cpu_count": 2,
    "cpu_used_pct": 12.5,
    "mem_total": 100,
    "mem_used": 50,
    "mem_cache": 10,
    "disk_used": 1,
    "disk_total": 2,
    "ts": 1,
}
SETUP = GuestSetup(
    sandbox_id="i1", template_id="t1", access_token="secret", hostname="i1", environment={"A": "1"}, default_user="user"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def client() -> AsyncIterator[GuestClient]:
    async with GuestClient(FakeClock()) as opened:
        yield opened


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[GuestAddress]]]:
    """Return a function that serves a handler as the daemon of a guest."""
    runners: list[web.ServerRunner] = []

    async def start(handler: Handler) -> GuestAddress:
        runner = web.ServerRunner(web.Server(handler))  # type: ignore[arg-type]
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return GuestAddress(IPv4Address("127.0.0.1"), runner.addresses[0][1])

    yield start
    for runner in runners:
        await runner.cleanup()


Serve = Callable[[Handler], Awaitable[GuestAddress]]


async def test_initialise_pushes_clock_entropy_identity_and_token(client: GuestClient, serve: Serve) -> None:
    bodies, tokens = [], []

    async def daemon(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        tokens.append(request.headers.get("X-Access-Token"))
        return web.Response(status=204)

    address = await serve(daemon)
    await client.initialise(address, SETUP, current_token=None)
    await client.initialise(address, SETUP, current_token="old")

    first, second = bodies
    assert first["accessToken"] == "secret"
    assert first["timestamp"] == START.isoformat()
    assert (first["envVars"], first["defaultUser"], first["sandboxID"]) == ({"A": "1"}, "user", "i1")
    assert "defaultWorkdir" not in first
    assert tokens == [None, "old"]
    assert len(base64.b64decode(first["entropy"])) == 256
    assert first["entropy"] != second["entropy"]


async def test_metrics_are_stamped_with_our_clock(client: GuestClient, serve: Serve) -> None:
    async def daemon(request: web.Request) -> web.Response:
        return web.json_response(METRICS)

    reading = await client.metrics(await serve(daemon), "token")
    assert (reading.timestamp, reading.memory_used) == (int(START.timestamp()), 50)


NONSENSE: list[dict[str, Any]] = [
    {"mem_used": -1},
    {"mem_total": 2**70},
    {"cpu_used_pct": "x"},
    {"cpu_used_pct": float("nan")},
    {"mem_used": float("inf")},
    {"cpu_used_pct": 10**400},
]
DEEP = "[" * 60_000


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "null", "{}", DEEP, *(json.dumps(METRICS | part) for part in NONSENSE)]
)
async def test_metrics_that_make_no_sense_are_refused(client: GuestClient, serve: Serve, text: str) -> None:
    async def daemon(request: web.Request) -> web.Response:
        return web.Response(text=text)

    with pytest.raises(GuestRefused):
        await client.metrics(await serve(daemon), "token")


async def test_an_endless_answer_is_cut_off(client: GuestClient, serve: Serve) -> None:
    async def daemon(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    with pytest.raises(GuestRefused, match="more than"):
        await client.metrics(await serve(daemon), "token")


async def test_an_error_and_a_redirect_are_refusals(client: GuestClient, serve: Serve) -> None:
    async def daemon(request: web.Request) -> web.Response:
        if request.path == "/init":
            return web.Response(status=401, text="no")
        return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})

    address = await serve(daemon)
    with pytest.raises(GuestRefused, match="401: no"):
        await client.initialise(address, SETUP, current_token=None)
    with pytest.raises(GuestRefused, match="302"):
        await client.shut_down(address, "token")


async def test_a_guest_that_is_not_there_is_unreachable(client: GuestClient) -> None:
    nobody = GuestAddress(IPv4Address("127.0.0.1"), 1)
    assert not await client.is_healthy(nobody, timeout_seconds=1)
    with pytest.raises(GuestUnreachable, match="GET /metrics"):
        await client.metrics(nobody, "token")


async def test_wait_ready_returns_once_the_daemon_answers(client: GuestClient, serve: Serve) -> None:
    ready = False

    async def daemon(request: web.Request) -> web.Response:
        return web.Response(status=204 if ready else 503)

    clock = client._clock
    assert isinstance(clock, FakeClock)
    waiting = asyncio.ensure_future(client.wait_ready(await serve(daemon)))
    while not clock._sleepers:
        await asyncio.sleep(0.001)
    assert not waiting.done()

    ready = True
    await clock.advance(1)
    await waiting


async def test_the_disk_is_frozen_for_a_bounded_time_and_thawed(client: GuestClient, serve: Serve) -> None:
    seen: list[tuple[str, str, str | None]] = []

    async def daemon(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.path_qs, request.headers.get("X-Access-Token")))
        return web.Response(status=204)

    address = await serve(daemon)
    await client.freeze_disk(address, "secret", hold_seconds=1.5, timeout_seconds=5)
    await client.thaw_disk(address, "secret")

    assert seen == [("POST", "/fsfreeze?holdMs=1500", "secret"), ("POST", "/fsthaw", "secret")]


async def test_a_guest_that_does_not_freeze_in_time_does_not_answer(client: GuestClient, serve: Serve) -> None:
    over = asyncio.Event()

    async def daemon(_: web.Request) -> web.StreamResponse:
        await over.wait()
        return web.Response(status=204)

    address = await serve(daemon)
    with pytest.raises(GuestUnreachable):
        await client.freeze_disk(address, "secret", hold_seconds=1, timeout_seconds=0.05)
    over.set()


async def test_a_guest_that_takes_connections_is_reachable_before_it_says_anything(
    client: GuestClient, serve: Serve
) -> None:
    requests: list[str] = []

    async def daemon(request: web.Request) -> web.StreamResponse:
        requests.append(request.path)
        return web.Response(status=204)

    await client.wait_reachable(await serve(daemon))
    assert requests == []
