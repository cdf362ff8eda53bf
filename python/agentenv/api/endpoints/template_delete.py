"""DELETE /templates/{id or name}: the contract's way to delete a snapshot."""

from aiohttp import web

from agentenv.api.answers import empty_answer
from agentenv.api.call import Call


async def delete_template(call: Call) -> web.Response:
    """Answer 204 once it is gone, 404 when it was already."""
    await call.orchestrator.delete_snapshot(call.parameters["templateID"])
    return empty_answer()
