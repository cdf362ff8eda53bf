"""The head of a guest's answer: strict parsing, how its body is framed, and the head to send to the client. Pure."""

import re
from dataclasses import dataclass
from enum import Enum, auto

from agentenv.proxy.errors import GuestAnswerBroken
from agentenv.proxy.headers import HOP_BY_HOP, connection_options

Headers = list[tuple[bytes, bytes]]

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([^\x00-\x08\x0a-\x1f\x7f]*))?")
_HEADER_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class Framing(Enum):
    """How the end of a body is known."""

    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Status and headers of an answer as the guest wrote them, and what follows from them."""

    status: int
    reason: bytes
    headers: Headers
    framing: Framing
    length: int
    keeps_alive: bool


def find_head_end(received: bytes, start: int = 0) -> int:
    """Return where the body begins in `received`, or -1 when no head ends behind `start`."""
    match = _HEAD_END.search(received, start)
    return -1 if match is None else match.end()


def parse_head(head: bytes, method: str) -> AnswerHead:
    """Parse the head of the answer to a `method` request. Raises `GuestAnswerBroken`."""
    lines = head.rstrip(b"\r\n").split(b"\n")
    status_line = _STATUS_LINE.fullmatch(lines[0].removesuffix(b"\r"))
    if status_line is None:
        raise GuestAnswerBroken("the program in the sandbox does not speak HTTP/1.1 on this port")
    headers: Headers = []
    for line in lines[1:]:
        match = _HEADER_LINE.fullmatch(line.removesuffix(b"\r"))
        if match is None:
            raise GuestAnswerBroken("the program in the sandbox sent a malformed header")
        headers.append((match[1], match[2].rstrip(b" \t")))
    status = int(status_line[2])
    framing, length = _framing(status, method, headers)
    keeps_alive = status_line[1] == b"1" and b"close" not in connection_options(headers)
    return AnswerHead(status, status_line[3] or b"", headers, framing, length, keeps_alive)


def _framing(status: int, method: str, headers: Headers) -> tuple[Framing, int]:
    if method == "HEAD" or status < 200 or status in {204, 304}:
        return Framing.NONE, 0
    codings = [value.lower() for name, value in headers if name.lower() == b"transfer-encoding"]
    if codings:
        if codings != [b"chunked"]:
            raise GuestAnswerBroken("the program in the sandbox used a transfer coding that cannot be carried")
        return Framing.CHUNKED, 0
    lengths = {value for name, value in headers if name.lower() == b"content-length"}
    if not lengths:
        return Framing.CLOSE, 0
    (value, *others) = lengths
    if others or _LENGTH.fullmatch(value) is None:
        raise GuestAnswerBroken("the program in the sandbox sent a malformed Content-Length")
    length = int(value)
    return (Framing.LENGTH, length) if length else (Framing.NONE, 0)


def write_head(head: AnswerHead, *, is_http_1_0: bool, keeps_alive: bool, chunked: bool) -> bytes:
    """Return the head to send to the client; its connection headers are ours, the rest is the guest's."""
    options = connection_options(head.headers)
    # A chunked answer and one that may not have a body carry no length; an answer to HEAD does.
    drop_length = chunked or head.status < 200 or head.status == 204
    lines = [b"HTTP/1.1 %d %b" % (head.status, head.reason)]
    seen_length = False
    for name, value in head.headers:
        lowered = name.lower()
        if lowered in HOP_BY_HOP or (lowered in options and lowered != b"content-length"):
            continue
        if lowered == b"content-length":
            if drop_length or seen_length:
                continue
            seen_length = True
        lines.append(b"%b: %b" % (name, value))
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if not keeps_alive:
        lines.append(b"Connection: close")
    elif is_http_1_0:
        lines.append(b"Connection: keep-alive")
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def write_switch(head: AnswerHead) -> bytes:
    """Return the head of a 101 answer to send to the client."""
    lines = [b"HTTP/1.1 101 %b" % (head.reason or b"Switching Protocols")]
    lines += [b"%b: %b" % (name, value) for name, value in head.headers if name.lower() not in _NOT_IN_SWITCH]
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


_NOT_IN_SWITCH = frozenset({b"content-length", b"transfer-encoding", b"keep-alive"})
