"""The address plan: what follows from a slot's index. Pure arithmetic; touches nothing."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

SLOT_PREFIX_LENGTH = 30
TAP = "tap0"
UPLINK = "uplink"
# Every tap has this address, so that a restored guest finds its gateway where its neighbour table says.
GATEWAY_MAC = "02:fc:00:00:00:06"
# Suffix of the names that the doctor's probe uses; the cleaning of leftovers knows it too.
PROBE = "probe"


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The names and addresses of one slot. `name` is its namespace and its link on the host."""

    index: int
    name: str
    owner: int
    host_address: IPv4Address
    address: IPv4Address


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """Cuts `network` into one /30 per slot: the first address is the host's end, the second the namespace's."""

    prefix: str
    network: IPv4Network
    max_slots: int
    uid_base: int

    def slot(self, index: int) -> SlotPlan:
        """Return the plan of slot `index`."""
        if not 0 <= index < self.max_slots:
            raise ValueError(f"slot {index} is outside 0..{self.max_slots - 1}")
        first = self.network.network_address + (index << (32 - SLOT_PREFIX_LENGTH))
        return SlotPlan(index, self.name(index), self.uid_base + index, first + 1, first + 2)

    def name(self, index: int) -> str:
        """Return the name of slot `index`, also of one that an earlier and larger configuration made."""
        return f"{self.prefix}-{index}"

    @property
    def probe_name(self) -> str:
        """The name of the namespace and link that a probe makes for a moment."""
        return f"{self.prefix}-{PROBE}"

    @property
    def link_pattern(self) -> str:
        """The nft pattern of all host links of this server.

        The dash keeps a server with the prefix `aenv` away from the links of one with `aenvb`.
        """
        return f"{self.prefix}-*"

    def index_of(self, name: str) -> int | None:
        """Return the index in a slot's name; None for the probe's name and for names that are not ours."""
        match = re.fullmatch(rf"{re.escape(self.prefix)}-(0|[1-9][0-9]{{0,4}})", name)
        return int(match[1]) if match else None

    def is_ours(self, name: str) -> bool:
        """Return whether a namespace or link of this name belongs to this server."""
        return name == self.probe_name or self.index_of(name) is not None
