"""GET /snapshots/{id or name} and GET /snapshots/{id or name}/tree, ours: one snapshot, and all it is related to."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.views import show_snapshot


async def get_snapshot(call: Call) -> web.Response:
    """Answer with what is known of a snapshot."""
    return json_answer(show_snapshot(await call.orchestrator.get_snapshot(call.parameters["snapshotID"])))


async def get_snapshot_tree(call: Call) -> web.Response:
    """Answer with the whole tree, parents before children."""
    tree = await call.orchestrator.snapshot_tree(call.parameters["snapshotID"])
    return json_answer([show_snapshot(summary) for summary in tree])
