"""Answers of the control plane as bytes: JSON, or nothing."""

import json
from collections.abc import Mapping

from aiohttp import web

# aiohttp would tell its own version and Python's.
_SERVER = {"Server": "agentenv"}


def json_answer(payload: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return `payload` as JSON."""
    body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    return web.Response(
        body=body,
        status=status,
        headers={**_SERVER, **(headers or {})},
        content_type="application/json",
        charset="utf-8",
    )


def empty_answer() -> web.Response:
    """Return 204."""
    return web.Response(status=204, headers=_SERVER)
