"""Names of snapshots: `name`, `name:tag`, `namespace/name:tag`. Pure.

One installation is one namespace, so the first part is accepted and dropped; no tag, and `latest`, mean `default`.
"""

import re
import uuid

from agentenv.snapshots.errors import NameInvalid

DEFAULT_TAG = "default"
_SAME_AS_DEFAULT = "latest"
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SHOWN_CHARACTERS = 128


def canonical(text: str) -> str:
    """Return `name:tag` for a name as clients write it. Raises `NameInvalid`."""
    namespace, slash, rest = text.rpartition("/")
    name, colon, tag = rest.partition(":")
    if slash and _NAMESPACE.fullmatch(namespace) is None:
        raise _invalid(text)
    if _NAME.fullmatch(name) is None or (colon and _TAG.fullmatch(tag) is None):
        raise _invalid(text)
    if _is_uuid(name):
        raise NameInvalid(f"'{name}' has the form of an id; choose another name for the snapshot")
    return f"{name}:{DEFAULT_TAG if tag in ('', _SAME_AS_DEFAULT) else tag}"


def to_key(name: str) -> str:
    """Return the key of the cell that holds a canonical name."""
    return name.replace(":", "@")


def from_key(key: str) -> str | None:
    """Return the canonical name whose cell has this key, or None for a stranger."""
    name = key.replace("@", ":")
    try:
        return name if key.count("@") == 1 and canonical(name) == name else None
    except NameInvalid:
        return None


def _is_uuid(name: str) -> bool:
    try:
        uuid.UUID(name)
    except ValueError:
        return False
    return True


def _invalid(text: str) -> NameInvalid:
    return NameInvalid(
        f"'{text[:_SHOWN_CHARACTERS]}' cannot be the name of a snapshot: up to 128 letters, digits, '_', '.' and '-', "
        "beginning with a letter or digit, then optionally ':' and a tag"
    )
