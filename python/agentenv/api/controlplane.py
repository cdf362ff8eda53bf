"""The control plane's door: route, key, endpoint, and one line in the log for each verb."""

import asyncio
from time import monotonic
from urllib.parse import quote

from aiohttp import web

from agentenv.api.call import Call
from agentenv.api.errors import RouteNotFound
from agentenv.api.keys import KeyRing, check_key
from agentenv.api.router import Route, Router
from agentenv.api.routes import make_routes
from agentenv.api.settings import ApiSettings
from agentenv.api.statuses import error_answer
from agentenv.base import log, metrics
from agentenv.base.errors import AgentEnvError
from agentenv.orchestrator.base import Orchestrator

_log = log.get("api")
_seconds = metrics.histogram("aenv_api_request_seconds", "Duration of a control-plane request.", ("verb", "outcome"))
_IGNORED_HEADER_CHARACTERS = 1024
_SHOWN_CHARACTERS = 64
_SHOWN_NAMES = 16


class ControlPlane:
    """Answers what is not for a sandbox."""

    def __init__(self, orchestrator: Orchestrator, keys: KeyRing, settings: ApiSettings) -> None:
        self._orchestrator = orchestrator
        self._keys = keys
        self._settings = settings
        self._router = Router(make_routes(settings))

    async def answer(self, request: web.BaseRequest, target: str) -> web.StreamResponse:
        """Answer a request to `target` (path and query); every error of ours becomes a JSON body."""
        try:
            route, parameters = self._router.match(request.method, self._strip_prefix(request.method, target))
            if route.needs_key:
                check_key(request.headers, self._keys)
        except AgentEnvError as error:
            return error_answer(error)
        return await self._run(route, Call(request, parameters, self._orchestrator, self._settings))

    def _strip_prefix(self, method: str, target: str) -> str:
        path = target.partition("?")[0]
        prefix = self._settings.path_prefix
        if not prefix:
            return path
        if not path.startswith(f"{prefix}/"):
            raise RouteNotFound(method, path)
        return path[len(prefix) :]

    async def _run(self, route: Route, call: Call) -> web.StreamResponse:
        begin = monotonic()
        outcome = "failed"
        try:
            answer = await route.endpoint(call)
            outcome = "done"
        except AgentEnvError as error:
            outcome = error.code
            answer = error_answer(error)
        except asyncio.CancelledError:
            outcome = "client_gone"
            raise
        finally:
            took = monotonic() - begin
            _seconds.labels(verb=route.verb, outcome=_outcome_class(outcome)).observe(took)
            if not route.is_quiet:
                _log.info(
                    "request_answered",
                    verb=route.verb,
                    outcome=outcome,
                    took_ms=round(took * 1000, 1),
                    **_facts(call),
                )
        if call.ignored:
            names = ", ".join(quote(name, safe="._-") for name in call.ignored)
            answer.headers["x-agentenv-ignored"] = names[:_IGNORED_HEADER_CHARACTERS]
        return answer


def _outcome_class(outcome: str) -> str:
    return outcome if outcome in {"done", "failed", "client_gone"} else "refused"


def _facts(call: Call) -> dict[str, object]:
    facts: dict[str, object] = {}
    if "sandboxID" in call.parameters:
        facts["sandbox_id"] = call.parameters["sandboxID"][:_SHOWN_CHARACTERS]
    if call.ignored:
        facts["ignored"] = [name[:_SHOWN_CHARACTERS] for name in call.ignored[:_SHOWN_NAMES]]
    return facts
