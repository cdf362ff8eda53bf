"""Pausing, resuming, forking and snapshots at the door: words in, a call, words out."""

import asyncio
from typing import Any

import pytest

from agentenv.api.settings import ApiSettings
from agentenv.base.errors import Unavailable
from agentenv.guest.base import DAEMON_PORT
from agentenv.objects.errors import StoreFull
from agentenv.orchestrator.base import PauseFacts, SandboxState
from agentenv.orchestrator.errors import GuestWasUnresponsive, WakeTimedOut
from agentenv.runtime.errors import GuestUnresponsive
from support.asking import call
from support.doors import Door
from support.wire import Peer, ScriptedGuest

UNKNOWN = "i" + "z" * 19


@pytest.mark.parametrize(
    "body, asked",
    [
        (None, ("pause", True, False)),
        ({}, ("pause", True, False)),
        ({"memory": True}, ("pause", True, False)),
        ({"memory": False, "requireHealthyGuest": True}, ("pause", False, True)),
    ],
)
async def test_pause_passes_on_what_was_asked(body: object, asked: tuple[object, ...]) -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        answer = await call(door, "POST", f"/sandboxes/{sandbox.id}/pause", body)
        assert door.orchestrator.asked == [asked]
        again = await call(door, "POST", f"/sandboxes/{sandbox.id}/pause")
    assert answer.status == 204
    assert (again.status, again.body["error_code"]) == (409, "sandbox_is_paused")


async def test_a_guest_that_must_answer_and_does_not_is_a_503_that_is_not_tried_again() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        door.orchestrator.failure = GuestUnresponsive("no answer")
        answer = await call(door, "POST", f"/sandboxes/{sandbox.id}/pause", {"requireHealthyGuest": True})
    assert (answer.status, answer.header(b"Should-Retry")) == (503, b"false")


async def test_a_full_disk_is_507() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        door.orchestrator.failure = StoreFull("no room")
        answer = await call(door, "POST", f"/sandboxes/{sandbox.id}/pause")
    assert answer.status == 507


@pytest.mark.parametrize(
    "path, body, asked, status",
    [
        ("/v2/sandboxes/{}/connect", {}, ("connect", True, None, False), 201),
        ("/v2/sandboxes/{}/connect", {"memory": False}, ("connect", False, None, False), 201),
        ("/sandboxes/{}/connect", {"timeout": 5, "memory": True}, ("connect", True, None, False), 201),
        ("/sandboxes/{}/resume", None, ("connect", True, None, True), 201),
        ("/sandboxes/{}/resume", {"autoPause": False, "memory": False}, ("connect", False, False, True), 201),
    ],
)
async def test_the_ways_to_resume(path: str, body: object, asked: tuple[object, ...], status: int) -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add(state=SandboxState.PAUSED)
        answer = await call(door, "POST", path.format(sandbox.id), body)
        assert door.orchestrator.asked == [asked]
    assert answer.status == status
    assert answer.body["envdAccessToken"] == "envd-token"


async def test_the_first_generations_resume_has_its_default_timeout() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add(state=SandboxState.PAUSED)
        await call(door, "POST", f"/sandboxes/{sandbox.id}/resume", {})
        assert door.orchestrator.timeouts == [(sandbox.id, 15)]


async def test_a_guest_that_was_unresponsive_is_named_to_clients() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add(state=SandboxState.PAUSED)
        door.orchestrator.failure = GuestWasUnresponsive("x")
        answer = await call(door, "POST", f"/v2/sandboxes/{sandbox.id}/connect", {})
    assert (answer.status, answer.body["error_code"]) == (409, "sandbox_snapshot_guest_agent_unresponsive")


@pytest.mark.parametrize(
    "facts, mode, unresponsive",
    [
        (PauseFacts(with_memory=True, guest_answered=True), "full", None),
        (PauseFacts(with_memory=False, guest_answered=True), "filesystem", None),
        (PauseFacts(with_memory=True, guest_answered=False), "full", True),
    ],
)
async def test_a_paused_sandbox_tells_how_it_was_paused(
    facts: PauseFacts, mode: str, unresponsive: bool | None
) -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add(state=SandboxState.PAUSED, pause=facts)
        detail = (await call(door, "GET", f"/sandboxes/{sandbox.id}")).body
        (listed,) = (await call(door, "GET", "/v2/sandboxes?state=paused")).body
    assert (detail["state"], detail["pauseMode"]) == ("paused", mode)
    assert detail.get("envdUnresponsiveAtPause") is unresponsive
    assert listed.get("envdUnresponsiveAtPause") is unresponsive


@pytest.mark.parametrize(
    "body, asked", [(None, ("fork", 1, 15)), ({}, ("fork", 1, 15)), ({"count": 3, "timeout": 60}, ("fork", 3, 60))]
)
async def test_fork_answers_for_each_child(body: object, asked: tuple[object, ...]) -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        answer = await call(door, "POST", f"/sandboxes/{sandbox.id}/fork", body)
        assert door.orchestrator.asked == [asked]
    assert answer.status == 201
    assert len(answer.body) == asked[1]
    assert answer.body[-1] == {"error": {"code": 429, "message": "this node is full"}}
    assert all(entry["sandbox"]["sandboxID"] != sandbox.id for entry in answer.body[:-1])


@pytest.mark.parametrize("body", [{"count": 0}, {"count": 17}, {"count": 100}, {"count": "2"}, {"timeout": 0}])
async def test_a_fork_that_cannot_be_is_400(body: object) -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        answer = await call(door, "POST", f"/sandboxes/{sandbox.id}/fork", body)
        assert door.orchestrator.asked == []
    assert answer.status == 400
    assert next(iter(body)) in answer.body["message"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "method, path, body",
    [
        ("POST", f"/sandboxes/{UNKNOWN}/pause", None),
        ("POST", f"/sandboxes/{UNKNOWN}/resume", None),
        ("POST", f"/sandboxes/{UNKNOWN}/fork", None),
        ("POST", f"/sandboxes/{UNKNOWN}/snapshots", None),
        ("POST", "/sandboxes/not-an-id/pause", None),
        ("GET", "/snapshots/nothing", None),
        ("GET", "/snapshots/nothing/tree", None),
        ("DELETE", "/templates/nothing", None),
    ],
)
async def test_what_there_is_not_is_404(method: str, path: str, body: object) -> None:
    async with Door() as door:
        assert (await call(door, method, path, body)).status == 404


async def test_a_snapshot_is_shown_with_what_it_comes_from() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        answer = await call(door, "POST", f"/sandboxes/{sandbox.id}/snapshots", {"name": "x", "memory": False})
        assert door.orchestrator.asked == [("snapshot", "x", False)]
        (summary,) = door.orchestrator.snapshots
        assert answer.status == 201
        assert answer.body == {
            "snapshotID": summary.snapshot_id,
            "names": ["x"],
            "parentID": None,
            "sandboxID": sandbox.id,
            "templateID": "tbase",
            "createdAt": "2026-01-01T00:00:00.000000Z",
            "cpuCount": 2,
            "memoryMB": 1024,
            "diskSizeMB": 10240,
            "memory": True,
            "sizeBytes": 1000,
        }
        for reference in (summary.snapshot_id, "x"):
            assert (await call(door, "GET", f"/snapshots/{reference}")).body == answer.body
            assert (await call(door, "GET", f"/snapshots/{reference}/tree")).body == [answer.body]
        assert (await call(door, "DELETE", "/templates/x")).status == 204
        assert (await call(door, "DELETE", "/templates/x")).status == 404


async def test_a_snapshots_name_may_hold_slashes_and_colons() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        await call(door, "POST", f"/sandboxes/{sandbox.id}/snapshots", {"name": "ns/x"})
        assert (await call(door, "GET", "/snapshots/ns%2Fx")).status == 200
        assert (await call(door, "DELETE", "/templates/ns%2Fx")).status == 204


async def test_snapshots_are_listed_in_pages_and_by_sandbox_and_name() -> None:
    async with Door() as door:
        first, second = door.orchestrator.add(), door.orchestrator.add()
        for number in range(5):
            await call(door, "POST", f"/sandboxes/{first.id}/snapshots", {"name": f"n{number}"})
        await call(door, "POST", f"/sandboxes/{second.id}/snapshots")

        seen: list[Any] = []
        token = ""
        while True:
            page = await call(door, "GET", f"/sandboxes/{first.id}/snapshots?limit=2{token}")
            seen += [name for one in page.body for name in one["names"]]
            following = page.header(b"X-Next-Token")
            if following is None:
                break
            token = f"&nextToken={following.decode()}"
        assert seen == ["n4", "n3", "n2", "n1", "n0"]
        assert len((await call(door, "GET", "/snapshots")).body) == 6
        assert len((await call(door, "GET", f"/snapshots?sandboxID={second.id}")).body) == 1
        assert len((await call(door, "GET", "/snapshots?name=n3")).body) == 1
        assert (await call(door, "GET", "/snapshots?name=nothing")).body == []
        assert (await call(door, "GET", "/snapshots?sandboxID=nothing-of-ours")).body == []


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "nextToken=%20", "name=a&name=b"])
async def test_a_list_that_makes_no_sense_is_400(query: str) -> None:
    async with Door() as door:
        assert (await call(door, "GET", f"/snapshots?{query}")).status == 400


async def test_rollback_needs_a_snapshot() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        await call(door, "POST", f"/sandboxes/{sandbox.id}/snapshots", {"name": "x"})
        answer = await call(door, "POST", f"/sandboxes/{sandbox.id}/rollback", {"snapshotID": "x"})
        assert (answer.status, answer.body["sandboxID"]) == (200, sandbox.id)
        assert (await call(door, "POST", f"/sandboxes/{sandbox.id}/rollback", {"snapshotID": "y"})).status == 404
        for body in (None, {}, {"snapshotID": ""}):
            assert (await call(door, "POST", f"/sandboxes/{sandbox.id}/rollback", body)).status == 400


async def test_an_expiry_that_keeps_the_disk_alone_can_be_asked_for() -> None:
    async with Door() as door:
        body = {"templateID": "base", "autoPause": True, "autoPauseMemory": False}
        assert (await call(door, "POST", "/v2/sandboxes", body)).status == 201
        (request,) = door.orchestrator.created
    assert (request.auto_pause, request.auto_pause_memory) == (True, False)


async def answer_ok(peer: Peer) -> None:
    while True:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def ask(door: Door, sandbox_id: str, port: int, extra: str = "") -> int:
    request = f"GET / HTTP/1.1\r\nHost: door\r\nE2b-Sandbox-Id: {sandbox_id}\r\nE2b-Sandbox-Port: {port}\r\n{extra}\r\n"
    async with await door.connect() as client:
        await client.send(request.encode())
        head, _ = await client.read_answer()
    return int(head.split(b" ")[1])


async def test_traffic_wakes_a_sandbox_that_wants_it_and_no_other() -> None:
    async with Door() as door, ScriptedGuest(answer_ok) as guest:
        willing = door.orchestrator.add(state=SandboxState.PAUSED, auto_resume=True)
        other = door.orchestrator.add(state=SandboxState.PAUSED)
        assert await ask(door, willing.id, guest.port) == 200
        assert await ask(door, other.id, guest.port) == 502
        assert door.orchestrator.asked == [("wake", guest.port)]


@pytest.mark.parametrize(
    "extra, status", [("", 403), ("X-Access-Token: wrong\r\n", 403), ("X-Access-Token: envd-token\r\n", 200)]
)
async def test_the_daemons_port_wakes_for_its_token_only(extra: str, status: int) -> None:
    async with Door() as door, ScriptedGuest(answer_ok) as guest:
        door.orchestrator.ports[DAEMON_PORT] = guest.port
        sandbox = door.orchestrator.add(state=SandboxState.PAUSED, auto_resume=True)
        assert await ask(door, sandbox.id, DAEMON_PORT, extra) == status
        assert len(door.orchestrator.asked) == (1 if status == 200 else 0)


@pytest.mark.parametrize("extra, status", [("", 403), ("E2B-Traffic-Access-Token: traffic-token\r\n", 200)])
async def test_a_private_port_wakes_for_the_traffic_token_only(extra: str, status: int) -> None:
    async with Door() as door, ScriptedGuest(answer_ok) as guest:
        sandbox = door.orchestrator.add(
            state=SandboxState.PAUSED, auto_resume=True, allow_public_traffic=False, traffic_token="traffic-token"
        )
        assert await ask(door, sandbox.id, guest.port, extra) == status
        assert len(door.orchestrator.asked) == (1 if status == 200 else 0)


async def test_a_sandbox_that_is_coming_up_is_waited_for_without_a_token() -> None:
    async with Door() as door, ScriptedGuest(answer_ok) as guest:
        door.orchestrator.ports[DAEMON_PORT] = guest.port
        sandbox = door.orchestrator.add(state=SandboxState.RESUMING, auto_resume=True)
        assert await ask(door, sandbox.id, DAEMON_PORT) == 200


@pytest.mark.parametrize("error, status", [(WakeTimedOut("x"), 504), (Unavailable("x"), 502)])
async def test_a_sandbox_that_does_not_wake_is_told(error: Exception, status: int) -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add(state=SandboxState.PAUSED, auto_resume=True)
        door.orchestrator.failure = error
        assert await ask(door, sandbox.id, 80) == status


async def test_every_one_of_our_own_paths_needs_the_key() -> None:
    async with Door(ApiSettings()) as door:
        calls = [
            call(door, "POST", f"/sandboxes/{UNKNOWN}/rollback", {"snapshotID": "x"}, key=None),
            call(door, "GET", f"/sandboxes/{UNKNOWN}/snapshots", key="wrong"),
            call(door, "GET", "/snapshots/x/tree", key=None),
        ]
        assert [answer.status for answer in await asyncio.gather(*calls)] == [401, 401, 401]
