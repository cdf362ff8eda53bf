"""Identifiers as types of their own, so that one cannot stand where another belongs."""

import re
import secrets
import string
import uuid
from datetime import datetime
from typing import NewType

SandboxId = NewType("SandboxId", str)
TemplateId = NewType("TemplateId", str)
SnapshotId = NewType("SnapshotId", str)

_ALPHABET = string.ascii_lowercase + string.digits
_SANDBOX_ID = re.compile(r"i[a-z0-9]{19}")
_SNAPSHOT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def new_sandbox_id() -> SandboxId:
    """Return a fresh id: `i` and 19 of `[a-z0-9]`, which fits one DNS label beside a port (e2b-contract 2.0)."""
    return SandboxId("i" + "".join(secrets.choice(_ALPHABET) for _ in range(19)))


def parse_sandbox_id(text: str) -> SandboxId | None:
    """Return the id in `text`, or None when no sandbox can have that name.

    The legacy form `<id>-<client>` that old clients put in paths is accepted.
    """
    head, _, tail = text.partition("-")
    if "-" in tail or _SANDBOX_ID.fullmatch(head) is None:
        return None
    return SandboxId(head)


def new_snapshot_id(now: datetime) -> SnapshotId:
    """Return a fresh id: a UUID of version 7, so that ids sort by the time at which they were made."""
    milliseconds = int(now.timestamp() * 1000)
    number = milliseconds << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)
    return SnapshotId(str(uuid.UUID(int=number)))


def parse_snapshot_id(text: str) -> SnapshotId | None:
    """Return the id in `text`, or None when no snapshot can have that id."""
    return SnapshotId(text) if _SNAPSHOT_ID.fullmatch(text) else None


def new_token() -> str:
    """Return an unguessable token of 256 bits, safe in a header and in a URL."""
    return secrets.token_urlsafe(32)
