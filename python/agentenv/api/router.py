"""The control plane's paths: matched segment by segment as they were sent, and decoded afterwards. Pure."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web

from agentenv.api.call import Call
from agentenv.api.errors import MethodNotAllowed, RequestInvalid, RouteNotFound

Endpoint = Callable[[Call], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path, such as `/sandboxes/{sandboxID}`.

    `verb` names it in logs and metrics; a quiet one is not logged.
    """

    method: str
    path: str
    verb: str
    endpoint: Endpoint
    needs_key: bool = True
    is_quiet: bool = False


class Router:
    """Finds the route of a request. A literal segment beats a parameter."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._table = sorted(((route.path.split("/"), route) for route in routes), key=lambda row: _openness(row[0]))

    def match(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route of `path` (without its query) and its parameters, decoded once.

        Raises `RouteNotFound`, `MethodNotAllowed` or `RequestInvalid`.
        """
        segments = path.split("/")
        allowed: list[str] = []
        for pattern, route in self._table:
            if not _fits(pattern, segments):
                continue
            if route.method == method:
                return route, _parameters(pattern, segments)
            allowed.append(route.method)
        if allowed:
            raise MethodNotAllowed(method, path, tuple(dict.fromkeys(allowed)))
        raise RouteNotFound(method, path)


def _openness(pattern: list[str]) -> list[bool]:
    return [segment.startswith("{") for segment in pattern]


def _fits(pattern: list[str], segments: list[str]) -> bool:
    return len(pattern) == len(segments) and all(
        (wanted.startswith("{") and given != "") or wanted == given
        for wanted, given in zip(pattern, segments, strict=True)
    )


def _parameters(pattern: list[str], segments: list[str]) -> dict[str, str]:
    try:
        return {
            wanted[1:-1]: unquote(given, errors="strict")
            for wanted, given in zip(pattern, segments, strict=True)
            if wanted.startswith("{")
        }
    except UnicodeDecodeError as error:
        raise RequestInvalid("the path is not UTF-8") from error
