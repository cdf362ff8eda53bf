"""The versions of a sandbox's durable record, and how each older one becomes the newest. Pure."""

from datetime import datetime
from typing import Any

_VERSION = 2
_KEY = "version"


def stamp(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the version that it has."""
    return {_KEY: _VERSION, **document}


def upgrade(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document in the newest form, without its version. Raises `ValueError` for one of a newer program."""
    document = dict(document)
    version = document.pop(_KEY, 1)
    if version > _VERSION:
        raise ValueError(f"version {version} is newer than this program, which knows {_VERSION}")
    if version == 1:
        document["timeout_seconds"] = _seconds_of_life(document["sandbox"])
    return document


def _seconds_of_life(sandbox: dict[str, Any]) -> int:
    """Version 1 knew when a sandbox ends, not what had been asked for."""
    started_at, ends_at = (datetime.fromisoformat(sandbox[name]) for name in ("started_at", "ends_at"))
    return max(1, round((ends_at - started_at).total_seconds()))
