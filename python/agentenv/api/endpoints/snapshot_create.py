"""POST /sandboxes/{id}/snapshots: what a running sandbox is now, kept for later."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.models import NewSnapshot
from agentenv.api.views import show_snapshot


async def create_snapshot(call: Call) -> web.Response:
    """Answer with the snapshot once it is durable; the sandbox runs on."""
    body = await call.body(NewSnapshot, may_be_absent=True)
    summary = await call.orchestrator.snapshot(call.sandbox_id, name=body.name, with_memory=body.memory is not False)
    return json_answer(show_snapshot(summary), status=201)
