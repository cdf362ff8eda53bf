"""Where a request wants to go: into a sandbox, by headers, by /proxy or by host name, or to the control plane. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from multidict import CIMultiDictProxy

from agentenv.api.errors import RequestInvalid

# The first name of each pair is the contract's, the second is our own older one.
_SANDBOX_HEADERS = ("E2b-Sandbox-Id", "x-agentenv-sandbox-id")
_PORT_HEADERS = ("E2b-Sandbox-Port", "x-agentenv-target-port")
_PREFIX = "/proxy"
_PORT = re.compile(r"[0-9]{1,5}")
_HOST_LABEL = re.compile(r"([0-9]{1,5})-(.+)")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_SHOWN_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Destination:
    """One port of one sandbox as the client named it, and the request target to send there."""

    sandbox: str
    port: int
    path: str

    @property
    def shown_sandbox(self) -> str:
        """The sandbox's name, short enough to be repeated in an answer."""
        return self.sandbox[:_SHOWN_CHARACTERS]


def find_destination(headers: CIMultiDictProxy[str], raw_path: str, domains: Sequence[str]) -> Destination | None:
    """Return where in a sandbox a request leads, None for the control plane.

    Routing headers beat the host name, and both beat any path. Raises `RequestInvalid` for half a destination.
    """
    path = origin_form(raw_path, headers)
    sandbox = _single(headers, _SANDBOX_HEADERS)
    port = _single(headers, _PORT_HEADERS)
    if sandbox is not None or port is not None:
        if not sandbox or not port:
            raise RequestInvalid(f"{_SANDBOX_HEADERS[0]} and {_PORT_HEADERS[0]} go together; one of them is missing")
        return Destination(sandbox, parse_port(port), _strip_prefix(path))
    if domains:
        return _from_host(headers.get("Host", ""), path, domains)
    return None


def origin_form(raw_path: str, headers: CIMultiDictProxy[str]) -> str:
    """Return the request target as path and query; a full URL must name the same host as the Host header."""
    match = _ABSOLUTE.match(raw_path)
    if match is None:
        if not raw_path.startswith("/") and raw_path != "*":
            raise RequestInvalid("the request target must be a path")
        return raw_path
    if match[1].lower() != headers.get("Host", "").lower():
        raise RequestInvalid("the request target and the Host header name different hosts")
    rest = raw_path[match.end() :].partition("#")[0]
    return rest if rest.startswith("/") else f"/{rest}"


def parse_port(text: str) -> int:
    """Return the port in `text`. Raises `RequestInvalid`."""
    port = int(text) if text.isascii() and _PORT.fullmatch(text) else 0
    if not 1 <= port <= 65535:
        raise RequestInvalid("the sandbox port must be a number from 1 to 65535")
    return port


def _single(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> str | None:
    values = {value.strip() for name in names for value in headers.getall(name, ())}
    if len(values) > 1:
        raise RequestInvalid(f"{names[0]} was sent with different values")
    return values.pop() if values else None


def _strip_prefix(path: str) -> str:
    if not path.startswith(_PREFIX):
        return path
    rest = path[len(_PREFIX) :]
    if rest.startswith("/"):
        return rest
    return f"/{rest}" if not rest or rest[0] == "?" else path


def _from_host(host: str, path: str, domains: Sequence[str]) -> Destination | None:
    name = host.rpartition(":")[0] if re.search(r":[0-9]*$", host) else host
    name = name.lower().rstrip(".")
    label, _, domain = name.partition(".")
    if domain not in domains:
        return None
    match = _HOST_LABEL.fullmatch(label)
    return None if match is None else Destination(match[2], parse_port(match[1]), path)
