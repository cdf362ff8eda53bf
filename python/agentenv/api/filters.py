"""Filters of the sandbox lists as clients encode them. Pure."""

import re
from urllib.parse import unquote_to_bytes

from agentenv.api.errors import RequestInvalid
from agentenv.orchestrator.base import PAUSED_STATES, RUNNING_STATES, SandboxState

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PAIRS_LIMIT = 256
_STATES = {
    "running": RUNNING_STATES,
    "paused": PAUSED_STATES,
}
ALL_STATES = _STATES["running"] | _STATES["paused"]


def parse_metadata(text: str) -> dict[str, str]:
    """Return the pairs of a `metadata` parameter that HTTP has decoded once. Raises `RequestInvalid`.

    Clients encode each key and value, then the joined whole, so both layers are undone here.
    """
    if not text:
        return {}
    pairs: dict[str, str] = {}
    for part in _decode(text).split("&"):
        key, equals, value = part.partition("=")
        if not equals or not key or "=" in value:
            raise RequestInvalid("metadata must be pairs such as key=value, joined by &")
        key, value = _decode(key), _decode(value)
        if pairs.setdefault(key, value) != value:
            raise RequestInvalid(f"metadata asks for two values of {key[:64]!r}")
        if len(pairs) > _PAIRS_LIMIT:
            raise RequestInvalid(f"metadata may hold at most {_PAIRS_LIMIT} pairs")
    return pairs


def parse_states(text: str) -> frozenset[SandboxState]:
    """Return the states of a comma-joined `state` parameter. Raises `RequestInvalid`."""
    states: frozenset[SandboxState] = frozenset()
    for word in text.split(","):
        if word not in _STATES:
            raise RequestInvalid("state must be running, paused, or both joined by a comma")
        states |= _STATES[word]
    return states


def _decode(text: str) -> str:
    if _BROKEN_ESCAPE.search(text):
        raise RequestInvalid("metadata holds a broken percent escape")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise RequestInvalid("metadata is not UTF-8") from error
