"""POST /sandboxes/{id}/refreshes: let a running sandbox live at least so much longer."""

from aiohttp import web

from agentenv.api.answers import empty_answer
from agentenv.api.call import Call
from agentenv.api.models import Refresh


async def refresh_sandbox(call: Call) -> web.Response:
    """Answer 204 once the new end is recorded; without a duration, the first generation's default counts."""
    body = await call.body(Refresh, may_be_absent=True)
    duration = call.settings.default_timeout_v1_seconds if body.duration is None else body.duration
    await call.orchestrator.refresh(call.sandbox_id, duration)
    return empty_answer()
