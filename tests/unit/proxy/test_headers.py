"""Heads of requests: what a guest sees of the client, and what it must not see."""

import dataclasses

import pytest

from agentenv.proxy.errors import RequestRefused
from agentenv.proxy.headers import RequestFacts, write_request_head

FACTS = RequestFacts(
    method="GET", path="/", headers=((b"Host", b"door.example"),), host=b"door.example", peer="192.0.2.1", scheme="http"
)


def lines(facts: RequestFacts) -> list[bytes]:
    return write_request_head(facts).split(b"\r\n")


def with_headers(*headers: tuple[bytes, bytes], **changes: object) -> RequestFacts:
    return dataclasses.replace(FACTS, headers=((b"Host", b"door.example"), *headers), **changes)  # type: ignore[arg-type]


def test_keys_and_traffic_tokens_never_reach_a_guest() -> None:
    head = write_request_head(
        with_headers((b"x-Api-KEY", b"secret"), (b"E2b-Traffic-Access-Token", b"secret"), (b"X-Access-Token", b"kept"))
    )
    assert b"secret" not in head
    assert b"X-Access-Token: kept" in head


def test_headers_of_one_hop_are_dropped_with_those_that_connection_names() -> None:
    head = write_request_head(
        with_headers(
            (b"Connection", b"close, X-Private"), (b"X-Private", b"1"), (b"TE", b"trailers"), (b"Upgrade", b"h2c")
        )
    )
    for name in (b"Connection", b"X-Private", b"TE:", b"Upgrade"):
        assert name not in head


def test_forged_forwarding_is_replaced_unless_trusted() -> None:
    forged = ((b"X-Forwarded-For", b"203.0.113.9"), (b"X-Forwarded-Proto", b"https"), (b"Forwarded", b"for=x"))
    assert [line for line in lines(with_headers(*forged)) if b"orwarded" in line] == [
        b"X-Forwarded-For: 192.0.2.1",
        b"X-Forwarded-Host: door.example",
        b"X-Forwarded-Proto: http",
    ]
    trusted = write_request_head(with_headers(*forged, trust_forwarded=True))
    assert b"X-Forwarded-For: 203.0.113.9\r\n" in trusted
    assert b"X-Forwarded-For: 192.0.2.1\r\n" in trusted
    assert b"X-Forwarded-Proto: https\r\n" in trusted
    assert b"X-Forwarded-Proto: http\r\n" not in trusted


def test_a_masked_host_is_what_the_guest_sees() -> None:
    head = lines(dataclasses.replace(FACTS, host=b"inner:8080"))
    assert b"Host: inner:8080" in head
    assert b"X-Forwarded-Host: door.example" in head


@pytest.mark.parametrize("path", ["/a b", "/a\rb", "/a\nb", "/a\0b", "/a\x7f", ""])
def test_a_target_that_could_split_the_request_is_refused(path: str) -> None:
    with pytest.raises(RequestRefused):
        write_request_head(dataclasses.replace(FACTS, path=path))


def test_raw_bytes_of_the_target_pass_untouched() -> None:
    path = b"/caf\xe9/%2e%2E//x?y=%20&z=".decode("utf-8", "surrogateescape")
    assert lines(dataclasses.replace(FACTS, path=path))[0] == b"GET /caf\xe9/%2e%2E//x?y=%20&z= HTTP/1.1"
