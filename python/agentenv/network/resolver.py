"""Finds the resolver that guests can use: the host's own, as far as it is reachable from another namespace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

# A stub on a loopback address answers only the host itself; these files name the servers behind it.
SOURCES = (
    Path("/etc/resolv.conf"),
    Path("/run/systemd/resolve/resolv.conf"),
    Path("/run/NetworkManager/no-stub-resolv.conf"),
    Path("/run/resolvconf/resolv.conf"),
)
_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Resolvers:
    """The servers that guests' questions go to, where they were found, and why there is none."""

    servers: tuple[IPv4Address, ...]
    source: str
    problem: str | None = None


def find_resolvers(configured: Sequence[IPv4Address], sources: Sequence[Path] = SOURCES) -> Resolvers:
    """Return the configured servers, or the first usable one that the host's files name."""
    if configured:
        return Resolvers(tuple(configured), "settings")
    for source in sources:
        for server in _servers(source):
            if not (server.is_loopback or server.is_unspecified or server.is_multicast or server.is_link_local):
                return Resolvers((server,), str(source))
    problem = (
        "guests cannot resolve names: this host names no IPv4 resolver that is reachable from another network "
        "namespace; set network.dns_servers"
    )
    return Resolvers((), "none", problem)


def _servers(source: Path) -> Iterator[IPv4Address]:
    try:
        with source.open("rb") as file:
            text = file.read(_LIMIT_BYTES).decode(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            try:
                yield IPv4Address(words[1])
            except AddressValueError:
                continue
