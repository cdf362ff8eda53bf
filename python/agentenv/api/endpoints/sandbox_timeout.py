"""POST /sandboxes/{id}/timeout: let a running sandbox end at another time, sooner or later."""

from aiohttp import web

from agentenv.api.answers import empty_answer
from agentenv.api.call import Call
from agentenv.api.models import Timeout


async def set_sandbox_timeout(call: Call) -> web.Response:
    """Answer 204 once the new end is recorded."""
    body = await call.body(Timeout)
    await call.orchestrator.set_timeout(call.sandbox_id, body.timeout)
    return empty_answer()
