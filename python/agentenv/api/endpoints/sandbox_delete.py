"""DELETE /sandboxes/{id}: end a sandbox and forget it."""

from aiohttp import web

from agentenv.api.answers import empty_answer
from agentenv.api.call import Call


async def delete_sandbox(call: Call) -> web.Response:
    """Answer 204 once it is gone."""
    await call.orchestrator.kill(call.sandbox_id)
    return empty_answer()
