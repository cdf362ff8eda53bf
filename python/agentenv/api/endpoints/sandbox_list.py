"""GET /v2/sandboxes (filtered, ordered, in pages) and GET /sandboxes (running ones, whole)."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call, parse_integer, parse_time
from agentenv.api.errors import RequestInvalid
from agentenv.api.filters import ALL_STATES, parse_metadata, parse_states
from agentenv.api.pages import cut_page, decode_token, encode_token
from agentenv.api.views import show_listed
from agentenv.orchestrator.base import RUNNING_STATES, ListQuery, Order

_PAGE_LIMIT = 100
_WHOLE_LIMIT = 5000


async def list_sandboxes(call: Call) -> web.Response:
    """Answer with one page."""
    query = call.query()
    wanted = _list_query(query)
    limit = parse_integer("limit", query["limit"]) if "limit" in query else _PAGE_LIMIT
    if not 1 <= limit <= _PAGE_LIMIT:
        raise RequestInvalid(f"limit must be from 1 to {_PAGE_LIMIT}")
    token = query.get("nextToken")
    after = decode_token(token, wanted.order) if token else None
    found = await call.orchestrator.find(wanted)
    page, following = cut_page(found, wanted.order, after, limit)
    is_whole = wanted == ListQuery(order=wanted.order)
    running = found if is_whole else await call.orchestrator.find(ListQuery(states=RUNNING_STATES))
    headers = {"X-Total-Running": str(sum(sandbox.state in RUNNING_STATES for sandbox in running))}
    if following is not None:
        headers["X-Next-Token"] = encode_token(following)
    return json_answer([show_listed(sandbox) for sandbox in page], headers=headers)


async def list_running_sandboxes(call: Call) -> web.Response:
    """Answer with all running sandboxes."""
    metadata = parse_metadata(call.query().get("metadata", ""))
    found = await call.orchestrator.find(ListQuery(states=RUNNING_STATES, metadata=metadata))
    if len(found) > _WHOLE_LIMIT:
        raise RequestInvalid(f"more than {_WHOLE_LIMIT} sandboxes match; use GET /v2/sandboxes, which has pages")
    return json_answer([show_listed(sandbox) for sandbox in found], headers={"X-Total-Running": str(len(found))})


def _list_query(query: dict[str, str]) -> ListQuery:
    order = query.get("order", Order.DESCENDING.value)
    if order not in {*Order}:
        raise RequestInvalid("order must be asc or desc")
    template = query.get("template") or None
    if template is not None and ":" in template:
        raise RequestInvalid("template must be an id or a name without a tag")
    started_after = query.get("startedAfter")
    return ListQuery(
        states=parse_states(query["state"]) if query.get("state") else ALL_STATES,
        metadata=parse_metadata(query.get("metadata", "")),
        template=template,
        started_after=parse_time("startedAfter", started_after) if started_after else None,
        order=Order(order),
    )
