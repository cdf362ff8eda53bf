"""POST /sandboxes/{id}/pause: put a running sandbox into a durable snapshot."""

from aiohttp import web

from agentenv.api.answers import empty_answer
from agentenv.api.call import Call
from agentenv.api.models import Pause


async def pause_sandbox(call: Call) -> web.Response:
    """Answer 204 once it is paused; 409 tells clients that it was already."""
    body = await call.body(Pause, may_be_absent=True)
    await call.orchestrator.pause(
        call.sandbox_id, with_memory=body.memory is not False, needs_guest=body.requireHealthyGuest is True
    )
    return empty_answer()
