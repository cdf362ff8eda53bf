"""GET /templates/aliases/{alias}: whether a template has this name."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.errors import TemplateAliasUnknown


async def get_template_alias(call: Call) -> web.Response:
    """Answer with the template's id, or 404."""
    alias = call.parameters["alias"].lower()
    for template in await call.orchestrator.templates():
        if alias in template.names or alias == template.template_id:
            return json_answer({"templateID": template.template_id, "public": True})
    raise TemplateAliasUnknown(f"template '{alias[:64]}' not found")
