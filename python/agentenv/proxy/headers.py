"""Which headers pass from a client to a guest, and the head of the request that carries them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from agentenv.proxy.errors import RequestRefused

RawHeaders = Iterable[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# What opens the control plane, or a private port, must never be seen by what runs in a sandbox.
_SECRETS = frozenset({b"x-api-key", b"e2b-traffic-access-token"})
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"})
_ALWAYS_DROPPED = HOP_BY_HOP | _SECRETS | {b"host"}


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What the head of a forwarded request is made of.

    `path` is written byte for byte. `upgrade` is the protocol that the client wants to switch to.
    """

    method: str
    path: str
    headers: RawHeaders
    host: bytes
    peer: str
    scheme: str
    is_chunked: bool = False
    upgrade: bytes | None = None
    trust_forwarded: bool = False


def connection_options(headers: RawHeaders) -> frozenset[bytes]:
    """Return the lower-cased words of all Connection headers."""
    words: set[bytes] = set()
    for name, value in headers:
        if name.lower() == b"connection":
            words.update(word.strip().lower() for word in value.split(b","))
    return frozenset(words)


def find_header(headers: RawHeaders, wanted: bytes) -> bytes | None:
    """Return the one value of a header, None when it is absent. Raises `RequestRefused` when it is there twice."""
    values = [value for name, value in headers if name.lower() == wanted]
    if len(values) > 1:
        raise RequestRefused(f"the header {wanted.decode()} may be sent only once")
    return values[0] if values else None


def write_request_head(facts: RequestFacts) -> bytes:
    """Return the head of the request to send to the guest."""
    path = facts.path.encode("utf-8", "surrogateescape")
    if not path or min(path) <= 0x20 or 0x7F in path:
        raise RequestRefused("the request target holds a space or a control character")
    options = connection_options(facts.headers)
    dropped = _ALWAYS_DROPPED if facts.trust_forwarded else _ALWAYS_DROPPED | _FORWARDED
    lines = [b"%b %b HTTP/1.1" % (facts.method.encode(), path), b"Host: " + facts.host]
    for name, value in facts.headers:
        lowered = name.lower()
        # Content-Length frames the body, so a Connection header cannot name it away.
        if lowered in dropped or (lowered in options and lowered != b"content-length"):
            continue
        lines.append(b"%b: %b" % (name, value))
    lines += _forwarded_lines(facts)
    if facts.is_chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if facts.upgrade is not None:
        lines.append(b"Connection: Upgrade")
        lines.append(b"Upgrade: " + facts.upgrade)
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def _forwarded_lines(facts: RequestFacts) -> list[bytes]:
    lines = [b"X-Forwarded-For: " + facts.peer.encode()]
    present = {name.lower() for name, _ in facts.headers} if facts.trust_forwarded else frozenset()
    if b"x-forwarded-host" not in present:
        original = find_header(facts.headers, b"host")
        if original:
            lines.append(b"X-Forwarded-Host: " + original)
    if b"x-forwarded-proto" not in present:
        lines.append(b"X-Forwarded-Proto: " + facts.scheme.encode())
    return lines
