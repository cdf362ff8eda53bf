"""GET /sandboxes/{id}/metrics: what a guest used, over a span of time."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call, parse_integer
from agentenv.api.errors import RequestInvalid
from agentenv.api.views import show_reading


async def get_sandbox_metrics(call: Call) -> web.Response:
    """Answer with the readings between `start` and `end`, both Unix seconds and optional."""
    query = call.query()
    start = parse_integer("start", query["start"]) if query.get("start") else None
    end = parse_integer("end", query["end"]) if query.get("end") else None
    if (start or 0) < 0 or (end or 0) < 0:
        raise RequestInvalid("start and end must not be negative")
    if start is not None and end is not None and start > end:
        raise RequestInvalid("start must not be behind end")
    readings = await call.orchestrator.metrics(call.sandbox_id, start, end)
    return json_answer([show_reading(reading) for reading in readings])
