from datetime import UTC, datetime
from urllib.parse import parse_qsl, unquote

import pytest

from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.client.api import ApiClient, encode_metadata
from agentenv.client.base import NewSandbox, SandboxFilter, SandboxState
from agentenv.client.errors import (
    AccessRefused,
    AnswerInvalid,
    KeyMissing,
    LimitReached,
    RequestRefused,
    RequestTimedOut,
    SandboxNotFound,
    ServerFailed,
    ServerUnreachable,
    StateConflict,
)
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport
from support.fake_server import API_KEY, TOKEN, FakeServer
from support.instant_clock import InstantClock

SANDBOX = SandboxId("iabcdefghijklmnopqrst")


async def test_create_sends_only_what_was_chosen(api: ApiClient, server: FakeServer) -> None:
    sandbox = await api.create(NewSandbox("base"))

    (request,) = server.seen("POST /v2/sandboxes")
    assert request.document == {"templateID": "base", "metadata": {}, "envVars": {}}
    assert sandbox.access_token == TOKEN
    assert TOKEN not in repr(sandbox)


async def test_create_sends_every_choice_in_the_words_of_the_contract(api: ApiClient, server: FakeServer) -> None:
    await api.create(NewSandbox("base", 90, {"a": "1"}, {"B": "2"}, allow_internet=False))

    (request,) = server.seen("POST /v2/sandboxes")
    assert request.document == {
        "templateID": "base",
        "timeout": 90,
        "metadata": {"a": "1"},
        "envVars": {"B": "2"},
        "allow_internet_access": False,
    }


async def test_a_repeated_create_carries_the_same_idempotency_key(
    api: ApiClient, server: FakeServer, clock: InstantClock
) -> None:
    for _ in range(2):
        server.answer("POST /v2/sandboxes", 503, {"code": 503, "message": "busy"})

    await api.create(NewSandbox("base"))

    keys = [request.headers["Idempotency-Key"] for request in server.seen("POST /v2/sandboxes")]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert len(clock.sleeps) == 2


async def test_should_retry_false_is_obeyed(api: ApiClient, server: FakeServer) -> None:
    server.answer("POST /v2/sandboxes", 503, {"code": 503, "message": "broken"}, Should_Retry="false")

    with pytest.raises(ServerFailed, match="broken"):
        await api.create(NewSandbox("base"))

    assert len(server.seen("POST /v2/sandboxes")) == 1


async def test_a_long_retry_after_is_reported_instead_of_waited_for(api: ApiClient, server: FakeServer) -> None:
    server.answer("POST /v2/sandboxes", 429, {"code": 429, "message": "no memory left"}, Retry_After="60")

    with pytest.raises(LimitReached, match="no memory left; try again in 60 s") as caught:
        await api.create(NewSandbox("base"))

    assert caught.value.retry_after_seconds == 60


async def test_a_permanently_busy_server_is_given_up(api: ApiClient, server: FakeServer) -> None:
    for _ in range(4):
        server.answer("GET /v2/sandboxes", 502, b"<html>bad gateway</html>")

    with pytest.raises(ServerFailed, match="answered 502 without saying why"):
        await api.list_page(SandboxFilter())

    assert len(server.seen("GET /v2/sandboxes")) == 4


@pytest.mark.parametrize(
    "status, body, error, message",
    [
        (400, {"code": 400, "message": "timeout is negative"}, RequestRefused, "timeout is negative"),
        (401, {"code": 401, "message": "bad key"}, AccessRefused, "bad key"),
        (403, {"code": 403, "message": "not yours"}, AccessRefused, "not yours"),
        (404, {"code": 404, "message": "no such thing"}, SandboxNotFound, "no such thing"),
        (409, {"code": 409, "message": "being paused"}, StateConflict, "being paused"),
        (422, b"", RequestRefused, "answered 422 without saying why"),
        (500, b"\xff\xfe", ServerFailed, "answered 500 without saying why"),
        (500, [1, 2], ServerFailed, "answered 500"),
        (500, {"message": {"deep": 1}}, ServerFailed, "answered 500"),
        (200, {}, AnswerInvalid, "200"),
        (301, b"", AnswerInvalid, "redirects to http://elsewhere"),
    ],
)
async def test_error_answers_become_typed_errors(
    api: ApiClient, server: FakeServer, status: int, body: object, error: type[AgentEnvError], message: str
) -> None:
    server.answer("POST /v2/sandboxes", status, body, Location="http://elsewhere")

    with pytest.raises(error, match=message):
        await api.create(NewSandbox("base"))


async def test_messages_cannot_steer_the_terminal(api: ApiClient, server: FakeServer) -> None:
    server.answer("GET /v2/sandboxes", 400, {"code": 400, "message": "a\x1b[2Jb\r\n" + "c" * 1000})

    with pytest.raises(RequestRefused) as caught:
        await api.list_page(SandboxFilter())

    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600


@pytest.mark.parametrize(
    "body",
    [b"not json", b"[]", {"sandboxID": 5}, {"sandboxID": "i1", "templateID": "t"}, b"[" * 100_000],
)
async def test_an_answer_against_the_contract_is_named_as_such(
    api: ApiClient, server: FakeServer, body: object
) -> None:
    server.answer("POST /v2/sandboxes", 201, body)

    with pytest.raises(AnswerInvalid):
        await api.create(NewSandbox("base"))


@pytest.mark.parametrize(
    "change", [{"state": "dreaming"}, {"startedAt": "yesterday"}, {"cpuCount": True}, {"metadata": {"a": 1}}]
)
async def test_a_list_with_a_bad_field_is_refused(
    api: ApiClient, server: FakeServer, change: dict[str, object]
) -> None:
    server.sandboxes[SANDBOX].update(change)

    with pytest.raises(AnswerInvalid, match=next(iter(change))):
        await api.list_page(SandboxFilter())


async def test_list_follows_pages_to_the_end(api: ApiClient, server: FakeServer) -> None:
    for number in range(250):
        server.add_sandbox(f"i{number:019d}")

    found = [sandbox async for sandbox in api.list_all(SandboxFilter())]

    assert len(found) == 251
    assert [request.query.get("nextToken") for request in server.seen("GET /v2/sandboxes")] == [None, "100", "200"]


async def test_list_sends_its_filters(api: ApiClient, server: FakeServer) -> None:
    states = frozenset({SandboxState.RUNNING, SandboxState.PAUSED})

    page = await api.list_page(SandboxFilter(states, {"k y": "v&1"}))

    (request,) = server.seen("GET /v2/sandboxes")
    assert request.query["state"] == "paused,running"
    assert request.query["metadata"] == "k%2520y=v%25261"
    (sandbox,) = page.sandboxes
    assert sandbox.end_at == datetime(2026, 11, 1, 10, 5, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize("pairs", [{"a": "b"}, {"k y": "v&1=%"}, {"ü": "ß", "x": ""}])
def test_metadata_survives_the_decoding_that_the_contract_prescribes(pairs: dict[str, str]) -> None:
    received = unquote(encode_metadata(pairs))

    assert dict(parse_qsl(received, keep_blank_values=True)) == pairs


async def test_get_finds_a_sandbox(api: ApiClient) -> None:
    assert (await api.get(SANDBOX)).state is SandboxState.RUNNING


async def test_kill_says_whether_there_was_one(api: ApiClient) -> None:
    assert await api.kill(SANDBOX)
    assert not await api.kill(SANDBOX)


async def test_deadlines_are_moved_in_the_words_of_the_contract(api: ApiClient, server: FakeServer) -> None:
    await api.set_timeout(SANDBOX, 5)
    await api.keep_alive(SANDBOX, 60)

    assert server.seen(f"POST /sandboxes/{SANDBOX}/timeout")[0].document == {"timeout": 5}
    assert server.seen(f"POST /sandboxes/{SANDBOX}/refreshes")[0].document == {"duration": 60}


async def test_the_key_is_sent_to_the_api(api: ApiClient, server: FakeServer) -> None:
    await api.list_page(SandboxFilter())

    assert server.requests[-1].headers["X-API-KEY"] == API_KEY


async def test_without_a_key_nothing_is_sent(transport: Transport, server: FakeServer) -> None:
    api = ApiClient(transport, ClientSettings(api_url=server.url))

    with pytest.raises(KeyMissing):
        await api.list_page(SandboxFilter())

    assert server.requests == []


async def test_a_closed_port_is_named(transport: Transport, settings: ClientSettings) -> None:
    api = ApiClient(transport, settings.model_copy(update={"api_url": "http://127.0.0.1:1"}))

    with pytest.raises(ServerUnreachable, match=r"nothing answers at http://127.0.0.1:1 \(Connection refused\)"):
        await api.list_page(SandboxFilter())


async def test_a_retry_stays_within_the_deadline(
    transport: Transport, settings: ClientSettings, server: FakeServer
) -> None:
    server.answer("GET /v2/sandboxes", 503, b"", Retry_After="9")
    api = ApiClient(transport, settings.model_copy(update={"request_timeout_seconds": 0.05}))

    with pytest.raises(RequestTimedOut, match=r"cannot list sandboxes: no answer within 0.05 s"):
        await api.list_page(SandboxFilter())
