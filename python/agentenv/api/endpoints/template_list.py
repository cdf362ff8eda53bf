"""GET /templates: what sandboxes can be created from."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.views import show_template


async def list_templates(call: Call) -> web.Response:
    """Answer with all templates; this server has one team, so `teamID` chooses nothing."""
    return json_answer([show_template(template) for template in await call.orchestrator.templates()])
