"""What guests may never reach, as ranges. Pure; the rules that enforce it are in `rules`."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

# RFC 6890 and friends: everything that is not the public internet. The host's own public addresses are not
# ranges; the host's rules refuse them as local.
CLOSED_RANGES = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)


@dataclass(frozen=True, slots=True)
class Fence:
    """The ranges and limits of one server. `denied` wins over `allowed`, which wins over the closed ranges."""

    denied: tuple[IPv4Network, ...] = ()
    allowed: tuple[IPv4Network, ...] = ()
    dns_servers: tuple[IPv4Address, ...] = ()
    max_connections: int = 4096

    def decide(self, destination: IPv4Address) -> bool:
        """Return whether a new connection to `destination` may leave; the model that the rules are tested against."""
        if _contains(self.denied, destination):
            return False
        return _contains(self.allowed, destination) or not _contains(CLOSED_RANGES, destination)


def without_overlaps(networks: Iterable[IPv4Network]) -> tuple[IPv4Network, ...]:
    """Return the same addresses in the fewest networks: an nft set accepts no overlaps."""
    return tuple(collapse_addresses(networks))


def _contains(networks: Iterable[IPv4Network], address: IPv4Address) -> bool:
    return any(address in network for network in networks)
