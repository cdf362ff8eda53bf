"""GET /health: the door is open."""

from aiohttp import web

from agentenv.api.answers import empty_answer
from agentenv.api.call import Call


async def get_health(call: Call) -> web.Response:
    """Answer 204."""
    del call
    return empty_answer()
