"""API keys: generated at the first start, kept as hashes in memory, compared in constant time."""

import hashlib
import hmac
import os
import re
import secrets

from agentenv.base import files
from agentenv.base.errors import Invalid
from agentenv.main.home import Home

ENVIRONMENT = "AENV_API_KEY"
_KEY = re.compile(r"[\x21-\x7e]{1,256}")


class KeyUnusable(Invalid):
    """A configured API key cannot be a header value."""

    code = "api_key_unusable"


class KeyRing:
    """The keys that this server accepts."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def accepts(self, key: str) -> bool:
        """Return whether `key` is one of ours; the time taken tells nothing about a key that comes close."""
        digest = _digest(key)
        return any(hmac.compare_digest(digest, known) for known in self._digests)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def new_key() -> str:
    """Return a key that nobody can guess, in the one form that older clients let through."""
    return f"e2b_{secrets.token_hex(24)}"


def obtain(home: Home) -> str:
    """Return the key in `AENV_API_KEY`, else the one in the home directory; one is generated (mode 0600) if need be."""
    key = os.environ.get(ENVIRONMENT, "")
    source = f"the environment variable {ENVIRONMENT}"
    if not key:
        source = f"the file {home.api_key}"
        if not home.api_key.exists():
            files.write_atomically(home.api_key, f"{new_key()}\n".encode(), mode=0o600)
        key = home.api_key.read_text(encoding="utf-8", errors="surrogateescape").strip()
    if _KEY.fullmatch(key) is None:
        raise KeyUnusable(f"{source} must hold 1 to 256 printable ASCII characters without spaces")
    return key
