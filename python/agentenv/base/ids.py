"""Identifiers as types of their own, so that one cannot stand where another belongs."""

import re
import secrets
import string
from typing import NewType

SandboxId = NewType("SandboxId", str)
TemplateId = NewType("TemplateId", str)

_ALPHABET = string.ascii_lowercase + string.digits
_SANDBOX_ID = re.compile(r"i[a-z0-9]{19}")


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


def new_token() -> str:
    """Return an unguessable token of 256 bits, safe in a header and in a URL."""
    return secrets.token_urlsafe(32)
