"""POST /sandboxes/{id}/connect in both generations: make sure that a sandbox runs, and hand out its token."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.errors import FeatureUnsupported, RequestInvalid
from agentenv.api.models import Connect
from agentenv.api.views import show_created


async def connect_sandbox(call: Call) -> web.Response:
    """Connect with the second generation's default timeout."""
    body = await call.body(Connect, may_be_absent=True)
    return await _connect(call, body, call.settings.default_timeout_seconds)


async def connect_sandbox_v1(call: Call) -> web.Response:
    """Connect; the first generation has no default timeout."""
    body = await call.body(Connect)
    if body.timeout is None:
        raise RequestInvalid("timeout: Field required")
    return await _connect(call, body, body.timeout)


async def _connect(call: Call, body: Connect, default_timeout_seconds: int) -> web.Response:
    timeout_seconds = default_timeout_seconds if body.timeout is None else body.timeout
    if body.memory is False:
        raise FeatureUnsupported("memory false is not supported by this server; leave it out")
    connected = await call.orchestrator.connect(call.sandbox_id, timeout_seconds)
    return json_answer(show_created(connected.sandbox, call.domain), status=201 if connected.resumed else 200)
