"""POST /sandboxes/{id}/fork: children of a running sandbox, which runs on."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.models import Fork
from agentenv.api.views import show_child


async def fork_sandbox(call: Call) -> web.Response:
    """Answer with one entry per child: a sandbox, or why there is none."""
    body = await call.body(Fork, may_be_absent=True)
    children = await call.orchestrator.fork(
        call.sandbox_id,
        count=1 if body.count is None else body.count,
        timeout_seconds=call.settings.default_timeout_v1_seconds if body.timeout is None else body.timeout,
    )
    return json_answer([show_child(child, call.domain) for child in children], status=201)
