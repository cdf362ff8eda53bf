"""The seam of `proxy`: what is carried to where, and what the carrier promises."""

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Protocol

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Target:
    """One port of one guest, for one generation of its machine.

    `path` is the request target to send, byte for byte. `host_header` replaces the client's Host when set.
    """

    owner: str
    generation: int
    host: IPv4Address
    port: int
    path: str
    host_header: str | None = None


class Proxy(Protocol):
    """Carries exchanges.

    Promises: bodies and upgraded connections stream unbuffered both ways in bounded memory; an answer that breaks
    off in the guest never looks complete to the client; a connection made for one generation of a machine never
    serves another; whoever leaves first, the other side's connection is ended at once.
    """

    async def carry(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Carry one exchange to its end and return what aiohttp needs to go on.

        Raises an error of `proxy.errors` only while nothing of the answer has been sent.
        """
        ...

    def cut(self, owner: str) -> None:
        """End every connection to the guest of `owner` now; called when its machine ends, pauses or is replaced."""
        ...

    def cut_all(self) -> None:
        """End every connection to every guest now."""
        ...

    async def stop(self) -> None:
        """End everything."""
        ...
