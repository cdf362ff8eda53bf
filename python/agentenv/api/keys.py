"""Who may use the control plane. Holds no key: the ring is handed in."""

from typing import Protocol

from multidict import CIMultiDictProxy

from agentenv.api.errors import KeyRefused


class KeyRing(Protocol):
    """Knows the API keys of this server."""

    def accepts(self, key: str) -> bool:
        """Return whether `key` is one of ours, in a time that does not depend on how much of it is right."""
        ...


def check_key(headers: CIMultiDictProxy[str], ring: KeyRing) -> None:
    """Raise `KeyRefused` unless exactly one right X-API-KEY came."""
    keys = headers.getall("X-API-KEY", ())
    if not keys:
        raise KeyRefused("the header X-API-KEY is missing; set E2B_API_KEY to a key of this server")
    if len(keys) > 1:
        raise KeyRefused("the header X-API-KEY came more than once; send exactly one")
    if not ring.accepts(keys[0]):
        raise KeyRefused("the API key is not one of this server's; check E2B_API_KEY")
