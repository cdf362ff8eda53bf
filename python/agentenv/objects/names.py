"""Names that may reach a path or a key: checked here, because manifests and clients are untrusted. Pure."""

import re

from agentenv.base.errors import Bug

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_KIND = re.compile(r"[a-z]{1,32}")
# No key begins with a dot, so none is `.` or `..` or a temporary file; file systems end names at 255 bytes.
_KEY = re.compile(r"[A-Za-z0-9_@-][A-Za-z0-9._@-]{0,219}")


def hexadecimal(digest: str) -> str:
    """Return the hexadecimal part of a digest. Raises `Bug` when it is none: whoever parsed it should have refused."""
    if _DIGEST.fullmatch(digest) is None:
        raise Bug("a file of the repository was asked for by something that is not a digest")
    return digest.removeprefix("sha256:")


def digest_of(name: str) -> str | None:
    """Return the digest whose hexadecimal part is `name`, or None for a stranger among the blobs."""
    digest = f"sha256:{name}"
    return digest if _DIGEST.fullmatch(digest) else None


def check_cell(kind: str, key: str) -> None:
    """Raise `Bug` when a kind or a key cannot be part of a path."""
    if _KIND.fullmatch(kind) is None or _KEY.fullmatch(key) is None:
        raise Bug(f"'{kind}' and '{key[:64]}' do not name a cell")
