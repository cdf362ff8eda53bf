"""GET /snapshots, filtered and in pages, and GET /sandboxes/{id}/snapshots, ours: those of one sandbox."""

from dataclasses import replace

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call, parse_integer
from agentenv.api.errors import RequestInvalid
from agentenv.api.pages import Cursor, decode_token, encode_token
from agentenv.api.views import show_snapshot
from agentenv.base.ids import SnapshotId, parse_sandbox_id
from agentenv.orchestrator.base import Order
from agentenv.snapshots.base import Cursor as SnapshotCursor
from agentenv.snapshots.base import SnapshotQuery

_PAGE_LIMIT = 100


async def list_snapshots(call: Call) -> web.Response:
    """Answer with one page, the newest first. A sandbox or a name that there is not has no snapshots."""
    query = call.query()
    wanted = SnapshotQuery(name=query.get("name") or None)
    if query.get("sandboxID"):
        sandbox_id = parse_sandbox_id(query["sandboxID"])
        if sandbox_id is None:
            return json_answer([])
        wanted = replace(wanted, sandbox_id=sandbox_id)
    return await _page(call, wanted, query)


async def list_sandbox_snapshots(call: Call) -> web.Response:
    """Answer with one page of the snapshots that were taken of a sandbox, also of one that is gone."""
    return await _page(call, SnapshotQuery(sandbox_id=call.sandbox_id), call.query())


async def _page(call: Call, wanted: SnapshotQuery, query: dict[str, str]) -> web.Response:
    limit = parse_integer("limit", query["limit"]) if "limit" in query else _PAGE_LIMIT
    if not 1 <= limit <= _PAGE_LIMIT:
        raise RequestInvalid(f"limit must be from 1 to {_PAGE_LIMIT}")
    token = query.get("nextToken")
    after = None
    if token:
        cursor = decode_token(token, Order.DESCENDING)
        after = SnapshotCursor(cursor.time, SnapshotId(cursor.id))
    page = await call.orchestrator.find_snapshots(wanted, after=after, limit=limit)
    headers = {}
    if page.following is not None:
        following = Cursor(page.following.created_at, page.following.snapshot_id, Order.DESCENDING)
        headers["X-Next-Token"] = encode_token(following)
    return json_answer([show_snapshot(summary) for summary in page.snapshots], headers=headers)
