"""The control plane over real sockets: statuses, bodies and headers as the contract has them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agentenv.api.settings import ApiSettings
from agentenv.base.errors import Bug, Conflict, Corrupt, TimedOut, Unavailable
from agentenv.guest.base import GuestMetrics
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.errors import (
    AdmissionRefused,
    IdempotencyInProgress,
    IdempotencyMismatch,
)
from support.asking import Answer, call
from support.doors import KEY, Door
from support.wire import header, headers

UNKNOWN = "i" + "z" * 19


async def test_create_answers_with_what_the_sdk_needs() -> None:
    async with Door() as door:
        answer = await call(door, "POST", "/v2/sandboxes", {"templateID": "base"})
        (sandbox,) = door.orchestrator.sandboxes.values()
    assert answer.status == 201
    assert answer.header(b"x-agentenv-sandbox-id") == sandbox.id.encode()
    assert answer.body == {
        "templateID": "tbase",
        "alias": "base",
        "sandboxID": sandbox.id,
        "clientID": "",
        "envdVersion": sandbox.envd_version,
        "envdAccessToken": "envd-token",
        "trafficAccessToken": None,
        "domain": None,
    }


@pytest.mark.parametrize("path, timeout_seconds", [("/v2/sandboxes", 300), ("/sandboxes", 15)])
async def test_each_generation_has_its_own_default_timeout(path: str, timeout_seconds: int) -> None:
    async with Door() as door:
        assert (await call(door, "POST", path, {"templateID": "base"})).status == 201
        (request,) = door.orchestrator.created
    assert request.timeout_seconds == timeout_seconds
    assert request.auto_pause is None
    assert request.allow_internet is None
    assert request.allow_public_traffic is True


async def test_create_passes_on_all_that_was_asked() -> None:
    async with Door() as door:
        body = {
            "templateID": "base:tag",
            "timeout": 60,
            "autoPause": True,
            "autoResume": {"enabled": True},
            "allow_internet_access": False,
            "network": {"allowPublicTraffic": False, "maskRequestHost": "inner:${PORT}", "allowOut": []},
            "metadata": {"k": "v"},
            "envVars": {"A": "multi\nline"},
            "mcp": {"x": {}},
            "secure": False,
            "volumeMounts": [],
        }
        answer = await call(door, "POST", "/v2/sandboxes", body, extra=b"Idempotency-Key: abc-1\r\n")
        (request,) = door.orchestrator.created
    assert answer.body["trafficAccessToken"] == "traffic-token"
    assert answer.header(b"x-agentenv-ignored") is None
    assert (request.template, request.timeout_seconds, request.idempotency_key) == ("base:tag", 60, "abc-1")
    assert (request.auto_pause, request.auto_resume, request.allow_internet) == (True, True, False)
    assert (request.allow_public_traffic, request.mask_request_host) == (False, "inner:${PORT}")
    assert (request.metadata, request.environment) == ({"k": "v"}, {"A": "multi\nline"})


async def test_unknown_fields_are_ignored_and_named() -> None:
    async with Door() as door:
        answer = await call(
            door, "POST", "/v2/sandboxes", {"templateID": "base", "new\r\nfield": 1, "network": {"q": 1}}
        )
    assert answer.status == 201
    assert answer.header(b"x-agentenv-ignored") == b"new%0D%0Afield, network.q"


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"network": {"allowOut": ["1.1.1.1"]}}, "network.allowOut"),
        ({"network": {"denyOut": ["0.0.0.0/0"]}}, "network.denyOut"),
        ({"network": {"dnsServers": []}}, "network.dnsServers"),
        ({"network": {"httpsPorts": [443]}}, "network.httpsPorts"),
        ({"network": {"egressProxy": {"address": "x:1"}}}, "network.egressProxy"),
        ({"network": {"rules": {"a": []}}}, "network.rules"),
        ({"volumeMounts": [{"name": "v", "path": "/v"}]}, "volumeMounts"),
        ({"iam": {"tokens": {"t": {}}}}, "iam"),
        ({"customExtensionParams": {"x": 1}}, "customExtensionParams"),
        ({"autoPauseMemory": False}, "autoPauseMemory"),
        ({"autoPauseMemory": False, "autoPause": True, "autoResume": {"enabled": True}}, "autoPauseMemory"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -5}, "timeout"),
        ({"timeout": 10**30}, "timeout"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, object], named: str) -> None:
    async with Door() as door:
        answer = await call(door, "POST", "/v2/sandboxes", {"templateID": "base", **fields})
        assert not door.orchestrator.created
    assert answer.status == 400
    assert named in answer.body["message"]


async def test_an_unknown_template_is_404() -> None:
    async with Door() as door:
        answer = await call(door, "POST", "/v2/sandboxes", {"templateID": "nope"})
    assert answer.status == 404
    assert "nope" in answer.body["message"]


@pytest.mark.parametrize("extra", [b"Idempotency-Key: UPPER\r\n", b"Idempotency-Key: a\r\nIdempotency-Key: a\r\n"])
async def test_a_malformed_idempotency_key_is_400(extra: bytes) -> None:
    async with Door() as door:
        assert (await call(door, "POST", "/v2/sandboxes", {"templateID": "base"}, extra=extra)).status == 400


@pytest.mark.parametrize(
    "error, status, error_code, hints",
    [
        (IdempotencyMismatch("x"), 422, "idempotency_request_mismatch", {}),
        (IdempotencyInProgress("x"), 409, "idempotency_in_progress", {}),
        (Conflict("x", code="sandbox_is_paused"), 409, "sandbox_is_paused", {}),
        (AdmissionRefused("x"), 429, "sandbox_capacity_unavailable", {b"Retry-After": b"1"}),
        (AdmissionRefused("x", retry_after_seconds=7), 429, "sandbox_capacity_unavailable", {b"Retry-After": b"7"}),
        (Unavailable("x"), 503, None, {b"Should-Retry": b"false"}),
        (Unavailable("x", retry_after_seconds=2), 503, None, {b"Should-Retry": b"true", b"Retry-After": b"2"}),
        (TimedOut("x"), 504, None, {b"Should-Retry": b"false"}),
        (Corrupt("x"), 500, None, {}),
        (Bug("x"), 500, None, {}),
    ],
)
async def test_each_kind_of_error_has_its_status_and_hints(
    error: Exception, status: int, error_code: str | None, hints: dict[bytes, bytes]
) -> None:
    async with Door() as door:
        door.orchestrator.failure = error
        answer = await call(door, "POST", "/v2/sandboxes", {"templateID": "base"})
    assert answer.status == status
    assert answer.body.get("error_code") == error_code
    assert {name: answer.header(name) for name in (b"Retry-After", b"Should-Retry") if answer.header(name)} == hints


@pytest.mark.parametrize("failure", [RuntimeError("secret detail"), ConnectionRefusedError("secret detail")])
async def test_a_panic_is_500_without_its_cause(failure: Exception) -> None:
    async with Door() as door:
        door.orchestrator.failure = failure
        answer = await call(door, "GET", "/v2/sandboxes")
    assert answer.status == 500
    assert "secret" not in answer.body["message"]
    assert "incident" in answer.body["message"]


@pytest.mark.parametrize(
    "key, extra",
    [
        (None, b""),
        ("wrong", b""),
        ("", b""),
        (KEY, b"x-api-key: right-key\r\n"),
        (None, b"Authorization: Bearer right-key\r\n"),
    ],
    ids=["none", "wrong", "empty", "two", "bearer"],
)
async def test_anything_but_one_right_key_is_401(key: str | None, extra: bytes) -> None:
    async with Door() as door:
        assert (await call(door, "GET", "/v2/sandboxes", key=key, extra=extra)).status == 401


async def test_health_and_metrics_need_no_key() -> None:
    async with Door() as door:
        assert (await call(door, "GET", "/health", key=None)).status == 204
        async with await door.connect() as client:
            await client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            head, body = await client.read_answer()
    assert header(head, b"content-type") == b"text/plain; version=0.0.4; charset=utf-8"
    assert b"aenv_api_request_seconds" in body


async def test_metrics_can_be_locked() -> None:
    async with Door(ApiSettings(metrics_need_key=True)) as door:
        assert (await call(door, "GET", "/metrics", key=None)).status == 401


@pytest.mark.parametrize(
    "method, path, status", [("GET", "/nope", 404), ("PUT", "/sandboxes", 405), ("GET", "/sandboxes//timeout", 404)]
)
async def test_the_router_answers_in_json(method: str, path: str, status: int) -> None:
    async with Door() as door:
        answer = await call(door, method, path)
    assert answer.status == status
    if status == 404:
        assert answer.body["message"] == f"route not found: {method} {path}"
    else:
        assert answer.header(b"allow") == b"POST, GET"


async def test_a_path_prefix_is_part_of_every_path() -> None:
    async with Door(ApiSettings(path_prefix="/api")) as door:
        assert (await call(door, "GET", "/api/v2/sandboxes")).status == 200
        assert (await call(door, "GET", "/v2/sandboxes")).status == 404


@pytest.mark.parametrize("raw", [b"{", b"", b"[]", b'{"templateID":1}', b"\xff\xfe"])
async def test_a_body_that_is_not_what_it_should_be_is_400(raw: bytes) -> None:
    async with Door() as door:
        assert (await call(door, "POST", "/v2/sandboxes", raw)).status == 400


async def test_a_body_that_is_too_large_is_413() -> None:
    async with Door(ApiSettings(body_limit_bytes=2048)) as door:
        assert (await call(door, "POST", "/v2/sandboxes", b" " * 5000)).status == 413


async def test_a_compressed_body_is_refused() -> None:
    async with Door() as door:
        answer = await call(door, "POST", "/v2/sandboxes", b"\x1f\x8b", extra=b"Content-Encoding: gzip\r\n")
    assert answer.status == 400


async def test_a_chunked_body_without_a_length_is_read() -> None:
    async with Door() as door, await door.connect() as client:
        await client.send(
            b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nx-api-key: right-key\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await client.send(b'a\r\n{"template\r\n')
        await client.send(b'b\r\nID":"base"}\r\n0\r\n\r\n')
        head, _ = await client.read_answer()
    assert head.startswith(b"HTTP/1.1 201 ")


async def test_a_malformed_chunked_body_is_400_and_ends_the_connection() -> None:
    async with Door() as door, await door.connect() as client:
        await client.send(
            b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-KEY: right-key\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await client.send(b"zz\r\n{}\r\n0\r\n\r\n")
        answer = await client.read_to_end()
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert answer.count(b" 400 Bad Request\r\n") == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 70000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
        b"GET http://elsewhere/health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    ],
    ids=["length and chunked", "two lengths", "space", "coding", "no host", "long", "many", "two hosts", "tls"],
)
async def test_a_request_that_could_mean_two_things_is_400_in_json(request_bytes: bytes) -> None:
    async with Door() as door, await door.connect() as client:
        await client.send(request_bytes)
        answer = Answer(*await client.read_answer())
    assert answer.status == 400
    assert answer.body["code"] == 400


async def test_connect_tells_running_from_resumed() -> None:
    async with Door() as door:
        running = door.orchestrator.add()
        paused = door.orchestrator.add(state=SandboxState.PAUSED)
        assert (await call(door, "POST", f"/v2/sandboxes/{running.id}/connect", {})).status == 200
        assert (await call(door, "POST", f"/v2/sandboxes/{running.id}/connect")).status == 200
        answer = await call(door, "POST", f"/sandboxes/{paused.id}/connect", {"timeout": 9})
        assert door.orchestrator.timeouts == [(running.id, 300), (running.id, 300), (paused.id, 9)]
    assert answer.status == 201
    assert answer.body["envdAccessToken"] == "envd-token"


@pytest.mark.parametrize(
    "path, body, status",
    [
        ("/sandboxes/{}/connect", {}, 400),
        ("/v2/sandboxes/{}/connect", {"timeout": -1}, 400),
        ("/v2/sandboxes/" + UNKNOWN + "/connect", {}, 404),
    ],
)
async def test_connect_refuses(path: str, body: object, status: int) -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        assert (await call(door, "POST", path.format(sandbox.id), body)).status == status


async def test_get_shows_everything_a_client_may_know() -> None:
    async with Door(ApiSettings(domains=("boxes.example",))) as door:
        sandbox = door.orchestrator.add(metadata={"k": "v"}, state=SandboxState.PAUSING, mask_request_host="m")
        answer = await call(door, "GET", f"/sandboxes/{sandbox.id}")
    assert answer.body == {
        "templateID": "tbase",
        "alias": "base",
        "sandboxID": sandbox.id,
        "clientID": "",
        "startedAt": "2026-01-01T00:00:00.000000Z",
        "endAt": "2026-01-01T00:05:00.000000Z",
        "cpuCount": 2,
        "memoryMB": 1024,
        "diskSizeMB": 10240,
        "state": "paused",
        "envdVersion": sandbox.envd_version,
        "metadata": {"k": "v"},
        "envdAccessToken": "envd-token",
        "allowInternetAccess": None,
        "domain": "boxes.example",
        "network": {"allowPublicTraffic": True, "maskRequestHost": "m"},
        "lifecycle": {"autoResume": False, "onTimeout": "kill"},
    }


@pytest.mark.parametrize(
    "name", [UNKNOWN, "nonexistingsandbox", "00000000-0000-0000-0000-000000000000", "a%2Fb", "x" * 500]
)
async def test_a_name_that_no_sandbox_has_is_404(name: str) -> None:
    async with Door() as door:
        for method, suffix, body in [("GET", "", None), ("DELETE", "", None), ("POST", "/timeout", {"timeout": 1})]:
            assert (await call(door, method, f"/sandboxes/{name}{suffix}", body)).status == 404


async def test_the_older_form_of_an_id_is_understood() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        assert (await call(door, "GET", f"/sandboxes/{sandbox.id}-client")).status == 200


async def test_a_sandbox_that_is_being_ended_is_gone() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add(state=SandboxState.STOPPING)
        assert (await call(door, "GET", f"/sandboxes/{sandbox.id}")).status == 404


async def test_delete_is_204_and_then_404() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        assert (await call(door, "DELETE", f"/sandboxes/{sandbox.id}")).status == 204
        assert (await call(door, "DELETE", f"/sandboxes/{sandbox.id}")).status == 404


async def test_timeout_and_refresh_reach_the_orchestrator() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        assert (await call(door, "POST", f"/sandboxes/{sandbox.id}/timeout", {"timeout": 0})).status == 204
        assert (await call(door, "POST", f"/sandboxes/{sandbox.id}/timeout", {})).status == 400
        assert (await call(door, "POST", f"/sandboxes/{sandbox.id}/refreshes", {"duration": 60})).status == 204
        assert (await call(door, "POST", f"/sandboxes/{sandbox.id}/refreshes")).status == 204
        assert (await call(door, "POST", f"/sandboxes/{sandbox.id}/refreshes", {"duration": 3601})).status == 400
        assert door.orchestrator.timeouts == [(sandbox.id, 0)]
        assert door.orchestrator.refreshes == [(sandbox.id, 60), (sandbox.id, 15)]


async def test_metrics_of_a_sandbox_have_every_key() -> None:
    async with Door() as door:
        sandbox = door.orchestrator.add()
        door.orchestrator.readings = [
            GuestMetrics(100, 2, 1.5, 8, 4, 2, 32, 16),
            GuestMetrics(200, 2, 1.5, 8, 4, 2, 32, 16),
        ]
        answer = await call(door, "GET", f"/sandboxes/{sandbox.id}/metrics?start=50&end=150")
        assert (await call(door, "GET", f"/sandboxes/{sandbox.id}/metrics?start=x")).status == 400
        assert (await call(door, "GET", f"/sandboxes/{sandbox.id}/metrics?start=5&end=4")).status == 400
    assert answer.body == [
        {
            "timestamp": "1970-01-01T00:01:40.000000Z",
            "timestampUnix": 100,
            "cpuCount": 2,
            "cpuUsedPct": 1.5,
            "memUsed": 4,
            "memTotal": 8,
            "memCache": 2,
            "diskUsed": 16,
            "diskTotal": 32,
        }
    ]


async def test_a_list_is_filtered_ordered_and_paged() -> None:
    async with Door() as door:
        first, second, third = [door.orchestrator.add(metadata={"n": str(n), "all": "&="}) for n in range(3)]
        paused = door.orchestrator.add(state=SandboxState.PAUSED)
        door.orchestrator.add(state=SandboxState.STARTING)

        async def listed(query: str) -> list[str]:
            answer = await call(door, "GET", f"/v2/sandboxes{query}")
            assert answer.status == 200
            assert answer.header(b"x-total-running") == b"3"
            return [one["sandboxID"] for one in answer.body]

        assert await listed("") == [paused.id, third.id, second.id, first.id]
        assert await listed("?order=asc") == [first.id, second.id, third.id, paused.id]
        assert await listed("?state=running&limit=2") == [third.id, second.id]
        assert await listed("?state=paused") == [paused.id]
        assert await listed("?state=running%2Cpaused&limit=100") == [paused.id, third.id, second.id, first.id]
        assert await listed("?metadata=n%3D1%26all%3D%252526%25253D") == [second.id]
        assert await listed("?metadata=n%3D1%26n2%3D2") == []
        assert await listed("?template=base&startedAfter=2026-01-01T00:00:01Z") == [paused.id, third.id, second.id]
        assert await listed("?template=nope") == []


async def test_pages_follow_their_tokens_to_the_end() -> None:
    async with Door() as door:
        sandboxes = [door.orchestrator.add() for _ in range(3)]
        seen: list[str] = []
        token = ""
        for _ in range(3):
            answer = await call(door, "GET", f"/v2/sandboxes?order=asc&limit=1&nextToken={token}")
            seen += [one["sandboxID"] for one in answer.body]
            token = (answer.header(b"x-next-token") or b"").decode()
    assert seen == [one.id for one in sandboxes]
    assert token == ""


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "limit=1&limit=2",
        "nextToken=nope",
        "order=up",
        "state=dead",
        "metadata=x",
        "startedAfter=yesterday",
        "startedAfter=2026-01-01T00:00:00",
        "template=base:tag",
        "state=%ff",
    ],
)
async def test_a_malformed_query_is_400(query: str) -> None:
    async with Door() as door:
        assert (await call(door, "GET", f"/v2/sandboxes?{query}")).status == 400


async def test_the_first_generation_lists_running_ones_whole() -> None:
    async with Door() as door:
        running = [door.orchestrator.add() for _ in range(2)]
        door.orchestrator.add(state=SandboxState.PAUSED)
        answer = await call(door, "GET", "/sandboxes")
        assert [one["sandboxID"] for one in answer.body] == [running[1].id, running[0].id]
        template = running[0]
        for index in range(5000):
            door.orchestrator.sandboxes[f"i{index:019}"] = replace(  # type: ignore[index]
                template, started_at=datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=index)
            )
        assert (await call(door, "GET", "/sandboxes")).status == 400


async def test_templates_are_found_by_name() -> None:
    async with Door() as door:
        (template,) = (await call(door, "GET", "/templates?teamID=x")).body
        assert template["templateID"] == "tbase"
        assert template["aliases"] == ["base"]
        assert (await call(door, "GET", "/templates/aliases/Base")).body == {"templateID": "tbase", "public": True}
        assert (await call(door, "GET", "/templates/aliases/ns%2Fnope")).status == 404


async def test_our_own_answers_do_not_tell_what_we_run_on() -> None:
    async with Door() as door:
        for path in ("/health", "/nope"):
            assert headers((await call(door, "GET", path)).head, b"server") == [b"agentenv"]


async def test_a_connection_too_many_is_told_so_and_a_place_becomes_free_again() -> None:
    async with Door(ApiSettings(connection_limit=1)) as door:
        async with await door.connect() as first:
            await first.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await first.read_head()).startswith(b"HTTP/1.1 204 ")
            async with await door.connect() as second:
                head, body = await second.read_answer()
        assert head.startswith(b"HTTP/1.1 503 ")
        assert json.loads(body)["code"] == 503
        while True:
            async with await door.connect() as third:
                await third.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                if (await third.read_head()).startswith(b"HTTP/1.1 204 "):
                    break
