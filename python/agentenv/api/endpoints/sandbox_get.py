"""GET /sandboxes/{id}: everything a client may know of one sandbox."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.views import show_detail
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.errors import SandboxNotFound


async def get_sandbox(call: Call) -> web.Response:
    """Answer with the detail. A sandbox that is being ended is gone already."""
    sandbox = await call.orchestrator.get(call.sandbox_id)
    if sandbox.state is SandboxState.STOPPING:
        raise SandboxNotFound(sandbox.id)
    return json_answer(show_detail(sandbox, call.domain))
