"""POST /sandboxes/{id}/rollback, ours: a running sandbox becomes again what a snapshot of its lineage was."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.models import Rollback
from agentenv.api.views import show_created


async def rollback_sandbox(call: Call) -> web.Response:
    """Answer with the sandbox once its daemon answers again; id, tokens and deadline are what they were."""
    body = await call.body(Rollback)
    sandbox = await call.orchestrator.rollback(call.sandbox_id, body.snapshotID)
    return json_answer(show_created(sandbox, call.domain))
