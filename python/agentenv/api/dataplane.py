"""The way into sandboxes: from a destination to a route, past the gates, to the proxy; errors as the contract says."""

import secrets
from http import HTTPStatus

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.destination import Destination
from agentenv.api.envd_paths import is_internal_path
from agentenv.api.errors import PrivatePort, RouteNotFound, WakeDenied
from agentenv.api.statuses import error_headers, status_of
from agentenv.base.errors import AgentEnvError, Kind, NotFound
from agentenv.base.ids import SandboxId, parse_sandbox_id
from agentenv.guest.base import DAEMON_PORT
from agentenv.orchestrator.base import Orchestrator, Route, Sandbox
from agentenv.orchestrator.errors import SandboxAsleep, SandboxNotRoutable
from agentenv.proxy.base import Proxy, Target
from agentenv.proxy.errors import PortClosed, SandboxGone

_TRAFFIC_TOKEN = "E2B-Traffic-Access-Token"  # noqa: S105 - the name of a header
_ACCESS_TOKEN = "X-Access-Token"  # noqa: S105 - the name of a header


class DataPlane:
    """Carries what is for a sandbox."""

    def __init__(self, orchestrator: Orchestrator, proxy: Proxy) -> None:
        self._orchestrator = orchestrator
        self._proxy = proxy

    async def carry(self, request: web.BaseRequest, destination: Destination) -> web.StreamResponse:
        """Carry a request to its destination, or say why not."""
        try:
            return await self._carry(request, destination)
        except AgentEnvError as error:
            return _error_answer(error, destination)

    async def _carry(self, request: web.BaseRequest, destination: Destination) -> web.StreamResponse:
        sandbox_id = parse_sandbox_id(destination.sandbox)
        if sandbox_id is None:
            raise SandboxNotRoutable(destination.shown_sandbox)
        if destination.port == DAEMON_PORT and is_internal_path(destination.path):
            raise RouteNotFound(request.method, destination.path.partition("?")[0])
        if request.method == "CONNECT":
            raise RouteNotFound(request.method, destination.path)
        route = await self._route(request, sandbox_id, destination.port)
        _check_ingress(request, route.sandbox, destination.port)
        try:
            return await self._proxy.carry(request, _target(route, destination))
        except AgentEnvError as error:
            if error.kind is Kind.UNAVAILABLE:
                # A guest that falls silent has often just been ended; the client must learn which of the two it is.
                await self._check_still_there(sandbox_id, destination.port, route)
            raise

    async def _route(self, request: web.BaseRequest, sandbox_id: SandboxId, port: int) -> Route:
        try:
            return await self._orchestrator.route(sandbox_id, port)
        except SandboxAsleep as asleep:
            if asleep.needs_waking:
                _check_may_wake(request, asleep.sandbox, port)
            return await self._orchestrator.wake(sandbox_id, port)

    async def _check_still_there(self, sandbox_id: SandboxId, port: int, route: Route) -> None:
        now = await self._orchestrator.route(sandbox_id, port)
        if now.generation != route.generation:
            raise SandboxGone("The sandbox was not found")


def _target(route: Route, destination: Destination) -> Target:
    mask = route.sandbox.mask_request_host
    return Target(
        owner=route.sandbox.id,
        generation=route.generation,
        host=route.host,
        port=route.port,
        path=destination.path,
        host_header=None if mask is None else mask.replace("${PORT}", str(destination.port)),
    )


def _check_ingress(request: web.BaseRequest, sandbox: Sandbox, port: int) -> None:
    """Private ports need the traffic token; the daemon's port is guarded by the daemon."""
    if sandbox.allow_public_traffic or port == DAEMON_PORT:
        return
    if not _has_token(request, _TRAFFIC_TOKEN, sandbox.traffic_token):
        raise PrivatePort(f"this port is private; send the sandbox's traffic token in {_TRAFFIC_TOKEN}")


def _check_may_wake(request: web.BaseRequest, sandbox: Sandbox, port: int) -> None:
    """The daemon that would refuse a request does not run, so the token is asked for here: strangers wake nobody."""
    if port == DAEMON_PORT and not _has_token(request, _ACCESS_TOKEN, sandbox.envd_token):
        raise WakeDenied(f"the sandbox is paused; to wake it, send its access token in {_ACCESS_TOKEN}")
    _check_ingress(request, sandbox, port)


def _has_token(request: web.BaseRequest, header: str, token: str | None) -> bool:
    tokens = request.headers.getall(header, ())
    expected = (token or "").encode()
    given = tokens[0].encode("utf-8", "surrogateescape") if len(tokens) == 1 else b""
    return bool(expected) and secrets.compare_digest(given, expected)


def _error_answer(error: AgentEnvError, destination: Destination) -> web.Response:
    status = HTTPStatus.BAD_GATEWAY if _is_gateway_error(error) else status_of(error)
    body: dict[str, object] = {"sandboxId": destination.shown_sandbox, "message": error.message, "code": int(status)}
    if isinstance(error, SandboxGone) or (isinstance(error, NotFound) and status is HTTPStatus.BAD_GATEWAY):
        body["message"] = "The sandbox was not found"
    elif isinstance(error, PortClosed):
        body["port"] = destination.port
    headers = {} if status is HTTPStatus.BAD_GATEWAY else error_headers(error)
    return json_answer(body, status=status, headers=headers)


def _is_gateway_error(error: AgentEnvError) -> bool:
    # Clients tell a dead sandbox from a closed port by the message of a 502, and by nothing else.
    if isinstance(error, RouteNotFound):
        return False
    return error.kind in {Kind.NOT_FOUND, Kind.UNAVAILABLE}
