"""The way into sandboxes: who gets in, what is said to those who do not, and that paths never win over headers."""

import asyncio
import json
from typing import Any

import pytest

from agentenv.api.settings import ApiSettings
from agentenv.guest.base import DAEMON_PORT
from agentenv.orchestrator.base import SandboxState
from support.doors import Door
from support.wire import Peer, ScriptedGuest, header

UNKNOWN = "i" + "z" * 19


async def echo_head(peer: Peer) -> None:
    while True:
        head = await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)


async def ask(door: Door, request: bytes) -> tuple[int, bytes, bytes]:
    async with await door.connect() as client:
        await client.send(request)
        head, body = await client.read_answer()
    return int(head.split(b" ")[1]), head, body


def routed(sandbox: str, port: int, path: str = "/", extra: str = "", method: str = "GET") -> bytes:
    routing = f"E2b-Sandbox-Id: {sandbox}\r\nE2b-Sandbox-Port: {port}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: door\r\n{routing}{extra}\r\n".encode()


async def refuse(door: Door, request: bytes, status: int) -> dict[str, Any]:
    got, head, body = await ask(door, request)
    assert got == status
    assert header(head, b"content-type") == b"application/json; charset=utf-8"
    parsed: dict[str, Any] = json.loads(body)
    assert parsed["code"] == status
    return parsed


@pytest.mark.parametrize("sandbox", [UNKNOWN, "no-such-sandbox", "x" * 300])
@pytest.mark.parametrize("path", ["/health", "/metrics", "/sandboxes", "/files?path=a"])
async def test_an_unknown_sandbox_is_a_502_on_every_path(sandbox: str, path: str) -> None:
    async with Door() as door:
        body = await refuse(door, routed(sandbox, DAEMON_PORT, path), 502)
    assert body == {"sandboxId": sandbox[:64], "message": "The sandbox was not found", "code": 502}


async def test_a_paused_sandbox_is_not_found_by_traffic() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add(state=SandboxState.PAUSED)
        assert (await refuse(door, routed(sandbox.id, 80), 502))["message"] == "The sandbox was not found"


async def test_a_closed_port_is_named() -> None:
    async with ScriptedGuest(echo_head) as guest:
        closed = guest.port
    async with Door() as door:
        sandbox = door.orchestrator.add()
        assert await refuse(door, routed(sandbox.id, closed), 502) == {
            "sandboxId": sandbox.id,
            "message": "The sandbox is running but port is not open",
            "port": closed,
            "code": 502,
        }


@pytest.mark.parametrize("path", ["/health", "/metrics", "/sandboxes", "/v2/sandboxes", "/templates"])
async def test_routing_headers_reach_the_guest_on_paths_of_the_control_plane(path: str) -> None:
    async with Door() as door, ScriptedGuest(echo_head) as guest:
        sandbox = door.orchestrator.add()
        status, _, body = await ask(door, routed(sandbox.id, guest.port, path, "X-API-KEY: right-key\r\n"))
    assert status == 200
    assert body.startswith(f"GET {path} HTTP/1.1\r\n".encode())
    assert b"right-key" not in body


async def test_a_host_name_leads_into_the_sandbox() -> None:
    async with Door(ApiSettings(domains=("Boxes.example",))) as door, ScriptedGuest(echo_head) as guest:
        sandbox = door.orchestrator.add()
        host = f"{guest.port}-{sandbox.id}.boxes.example:8000"
        status, _, body = await ask(door, f"GET /proxy/x HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert status == 200
    assert body.startswith(b"GET /proxy/x HTTP/1.1\r\n")
    assert header(body, b"host") == host.encode()


async def test_the_proxy_prefix_is_not_seen_by_the_guest() -> None:
    async with Door() as door, ScriptedGuest(echo_head) as guest:
        sandbox = door.orchestrator.add()
        _, _, body = await ask(door, routed(sandbox.id, guest.port, "/proxy/a?b"))
    assert body.startswith(b"GET /a?b HTTP/1.1\r\n")


async def test_a_masked_host_names_the_port_that_was_asked_for() -> None:
    async with Door() as door, ScriptedGuest(echo_head) as guest:
        sandbox = door.orchestrator.add(mask_request_host="inner:${PORT}")
        _, _, body = await ask(door, routed(sandbox.id, guest.port))
    assert header(body, b"host") == f"inner:{guest.port}".encode()


@pytest.mark.parametrize("path", ["/init", "//init/", "/%69nit", "/proxy/init", "/files/../shutdown", "/fsfreeze?x=1"])
async def test_internal_routes_of_the_daemon_do_not_exist_from_outside(path: str) -> None:
    async with Door() as door, ScriptedGuest(echo_head) as guest:
        door.orchestrator.ports[DAEMON_PORT] = guest.port
        sandbox = door.orchestrator.add()
        body = await refuse(door, routed(sandbox.id, DAEMON_PORT, path, method="POST"), 404)
        assert guest.connections == 0
        status, _, _ = await ask(door, routed(sandbox.id, guest.port, path))
    assert "route not found" in body["message"]
    assert status == 200


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "E2B-Traffic-Access-Token: wrong\r\n",
        "E2B-Traffic-Access-Token: \xff\r\n",
        "E2B-Traffic-Access-Token: token\r\nE2B-Traffic-Access-Token: token\r\n",
    ],
)
async def test_a_private_port_needs_the_token(extra: str) -> None:
    async with Door() as door, ScriptedGuest(echo_head) as guest:
        sandbox = door.orchestrator.add(allow_public_traffic=False, traffic_token="token")
        body = await refuse(door, routed(sandbox.id, guest.port, extra=extra), 403)
        assert guest.connections == 0
    assert body["sandboxId"] == sandbox.id


async def test_the_right_token_opens_a_private_port_and_goes_no_further() -> None:
    async with Door() as door, ScriptedGuest(echo_head) as guest:
        sandbox = door.orchestrator.add(allow_public_traffic=False, traffic_token="token")
        extra = "e2b-traffic-access-token: token\r\n"
        status, _, body = await ask(door, routed(sandbox.id, guest.port, extra=extra))
    assert status == 200
    assert b"traffic-access-token" not in body.lower()


async def test_the_daemon_guards_its_own_port() -> None:
    async with Door() as door, ScriptedGuest(echo_head) as guest:
        door.orchestrator.ports[DAEMON_PORT] = guest.port
        sandbox = door.orchestrator.add(allow_public_traffic=False, traffic_token="token")
        status, _, body = await ask(door, routed(sandbox.id, DAEMON_PORT, "/health", "X-Access-Token: t\r\n"))
    assert status == 200
    assert header(body, b"x-access-token") == b"t"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %b\r\n\r\n" % UNKNOWN.encode(),
        routed(UNKNOWN, 70000),
        routed(UNKNOWN, 80, extra="E2b-Sandbox-Id: other\r\n"),
    ],
    ids=["no port", "no such port", "two sandboxes"],
)
async def test_half_a_destination_is_400(request_bytes: bytes) -> None:
    async with Door() as door:
        await refuse(door, request_bytes, 400)


async def test_a_sandbox_that_ends_during_an_exchange_is_said_to_be_gone() -> None:
    arrived = asyncio.Event()
    killed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        arrived.set()
        await killed.wait()

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        sandbox = door.orchestrator.add()
        await client.send(routed(sandbox.id, guest.port))
        await arrived.wait()
        await door.orchestrator.kill(sandbox.id)
        killed.set()
        _, body = await client.read_answer()
    assert json.loads(body)["message"] == "The sandbox was not found"


async def test_a_connect_request_is_no_tunnel() -> None:
    async with Door() as door, await door.connect() as client:
        await client.send(b"CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n")
        head = await client.read_head()
    assert head.split(b" ")[1] in {b"400", b"404", b"405"}


async def test_the_door_closes_while_streams_are_open() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await peer.read_to_end()

    async with ScriptedGuest(script) as guest:
        async with Door() as door:
            sandbox = door.orchestrator.add()
            client = await door.connect()
            await client.send(routed(sandbox.id, guest.port))
            await client.read_head()
        with pytest.raises(ConnectionError):
            await Peer.connect(door.port)
        await client.close()
