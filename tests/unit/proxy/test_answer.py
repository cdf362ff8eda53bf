"""Heads of answers: what is taken from a guest, and what the client gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.proxy.answer import AnswerHead, Framing, parse_head, write_head
from agentenv.proxy.errors import GuestAnswerBroken


def parse(text: str, method: str = "GET") -> AnswerHead:
    return parse_head(text.encode("latin-1") + b"\r\n\r\n", method)


@pytest.mark.parametrize(
    "text, method, framing",
    [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5", "GET", Framing.LENGTH),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0", "GET", Framing.NONE),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5", "HEAD", Framing.NONE),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked", "GET", Framing.CHUNKED),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", "GET", Framing.CHUNKED),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5", "GET", Framing.NONE),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5", "GET", Framing.NONE),
        ("HTTP/1.0 200 OK", "GET", Framing.CLOSE),
        ("HTTP/1.1 200\nServer: x", "GET", Framing.CLOSE),
    ],
)
def test_the_end_of_a_body_is_known_from_the_head(text: str, method: str, framing: Framing) -> None:
    assert parse(text, method).framing is framing


@pytest.mark.parametrize(
    "text",
    [
        "SSH-2.0-OpenSSH_9.2",
        "HTTP/2 200 OK",
        "HTTP/1.1 999 No",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 200 OK\r\nno colon here",
        "HTTP/1.1 200 OK\r\nbad name: x",
        "HTTP/1.1 200 OK\r\nName : x",
        "HTTP/1.1 200 OK\r\nA: x\r\n folded",
        "HTTP/1.1 200 OK\r\nA: x\rB: y",
        "HTTP/1.1 200 OK\r\nA: x\0",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
        "HTTP/1.1 200 OK\r\nContent-Length: -1",
        "HTTP/1.1 200 OK\r\nContent-Length: +5",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ],
)
def test_a_head_that_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(GuestAnswerBroken):
        parse(text)


def test_a_guest_that_closes_after_the_answer_is_not_reused() -> None:
    assert parse("HTTP/1.1 200 OK\r\nContent-Length: 1").keeps_alive
    assert not parse("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive, Close").keeps_alive
    assert not parse("HTTP/1.0 200 OK\r\nContent-Length: 1").keeps_alive


def test_headers_reach_the_client_as_they_were_but_for_those_of_one_hop() -> None:
    head = parse(
        "HTTP/1.1 200 Fine\r\nset-cookie: a\r\nSet-Cookie: b\r\nX-Latin: \xe9\r\nKeep-Alive: timeout=5\r\n"
        "Connection: X-Private\r\nX-Private: 1\r\nContent-Length: 1\r\nUpgrade: h2c"
    )
    written = write_head(head, is_http_1_0=False, keeps_alive=True, chunked=False)
    assert written == (
        b"HTTP/1.1 200 Fine\r\nset-cookie: a\r\nSet-Cookie: b\r\nX-Latin: \xe9\r\nContent-Length: 1\r\n\r\n"
    )


def test_a_connection_header_cannot_name_the_length_away() -> None:
    head = parse("HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: 1")
    assert b"Content-Length: 1" in write_head(head, is_http_1_0=False, keeps_alive=True, chunked=False)


def test_an_answer_to_head_keeps_its_length() -> None:
    head = parse("HTTP/1.1 200 OK\r\nContent-Length: 7", "HEAD")
    assert b"Content-Length: 7" in write_head(head, is_http_1_0=False, keeps_alive=True, chunked=False)


@given(st.binary(max_size=200), st.sampled_from(["GET", "HEAD"]))
def test_no_bytes_from_a_guest_break_the_parser(tail: bytes, method: str) -> None:
    for raw in (tail, b"HTTP/1.1 200 OK\r\n" + tail, b"HTTP/1.1 200 OK\r\nContent-Length: " + tail):
        try:
            head = parse_head(raw, method)
        except GuestAnswerBroken:
            continue
        written = write_head(head, is_http_1_0=False, keeps_alive=True, chunked=False)
        assert written.count(b"\r\n\r\n") == 1
        assert b"\n" not in written.replace(b"\r\n", b"")
