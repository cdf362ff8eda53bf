"""The seam of `network`: what a slot is, and what a provider of slots promises."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GuestIdentity:
    """The address that every guest has, so that a restored memory image never needs re-addressing."""

    address: IPv4Address = IPv4Address("169.254.0.21")
    gateway: IPv4Address = IPv4Address("169.254.0.22")
    network: IPv4Network = IPv4Network("169.254.0.20/30")
    mac: str = "02:fc:00:00:00:05"


@dataclass(frozen=True, slots=True)
class Slot:
    """One place in the network for one sandbox.

    `address` is where the host reaches the guest: every TCP and UDP port of it is translated to the same
    port of the guest. `namespace` is the name under /run/netns; `tap` is the device inside of it, owned by
    user id `owner`.
    """

    index: int
    namespace: str
    tap: str
    owner: int
    address: IPv4Address
    guest: GuestIdentity


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """What a guest may reach. The host, other guests and private ranges are never reachable.

    `allow_internet` False drops everything that leaves the namespace, except answers to inbound connections.
    """

    allow_internet: bool = True


class Network(Protocol):
    """Gives out slots and takes them back.

    Promises: a slot is held by one holder at a time; a released slot carries no connection, address or rule of its
    last holder; whatever a killed server left behind is removed by `start`, except the slots named to keep.
    """

    async def start(self, keep: frozenset[int]) -> None:
        """Remove leftovers of an earlier process, except the slots in `keep`, write the rules and fill the pool."""
        ...

    async def acquire(self, policy: EgressPolicy) -> Slot:
        """Return a slot that is ready. Raises `SlotsExhausted` when all are held."""
        ...

    async def adopt(self, index: int, policy: EgressPolicy) -> Slot:
        """Return the slot that an earlier process held, kept by `start`. Raises `SlotLost` when it is not whole."""
        ...

    async def release(self, slot: Slot) -> None:
        """Take a slot back; it is cleaned and cools down before it is given out again. Never raises for a lost one."""
        ...

    async def stop(self, *, keep: frozenset[int] = frozenset()) -> None:
        """Remove everything that this provider made, except the slots in `keep`."""
        ...
