"""Pages of a list: an opaque token that names the last entry shown, so that changes lose and repeat nothing. Pure."""

import base64
import binascii
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agentenv.api.errors import RequestInvalid
from agentenv.orchestrator.base import Order, Sandbox

_TOKEN_TEXT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6})000Z__([a-z0-9-]{1,64})(__asc)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last entry of a page, by its time and id, and the order it was shown in."""

    time: datetime
    id: str
    order: Order


def encode_token(cursor: Cursor) -> str:
    """Return the token of the page behind `cursor`."""
    time = cursor.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    # strftime does not pad years before 1000, and the decoder insists on the form it knows.
    text = f"{time:0>26}000Z__{cursor.id}{'__asc' if cursor.order is Order.ASCENDING else ''}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_token(token: str, order: Order) -> Cursor:
    """Return the cursor in `token`. Raises `RequestInvalid` when it is not one of ours, or of another order."""
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode("ascii")
        match = _TOKEN_TEXT.fullmatch(text)
        time = None if match is None else datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except (binascii.Error, ValueError):
        match = time = None
    if match is None or time is None:
        raise RequestInvalid("nextToken is not a token of this server; start again without it")
    if (match[3] is not None) != (order is Order.ASCENDING):
        raise RequestInvalid("nextToken belongs to a list in the other order; start again without it")
    return Cursor(time, match[2], order)


def cut_page(
    sandboxes: Sequence[Sandbox], order: Order, after: Cursor | None, limit: int
) -> tuple[Sequence[Sandbox], Cursor | None]:
    """Return one page of sandboxes, which are in `order` already, and the cursor of the next page if there is one."""
    start = 0
    if after is not None:
        last = (after.time, after.id)

        def is_behind(sandbox: Sandbox) -> bool:
            key = (sandbox.started_at, str(sandbox.id))
            return key > last if order is Order.ASCENDING else key < last

        start = bisect_left(sandboxes, True, key=is_behind)
    page = sandboxes[start : start + limit]
    if start + limit >= len(sandboxes):
        return page, None
    return page, Cursor(page[-1].started_at, page[-1].id, order)
