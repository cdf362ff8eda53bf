"""Settings of the network: names, addresses, pool sizes and the fence."""

from ipaddress import IPv4Address, IPv4Network
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentenv.network.base import GuestIdentity
from agentenv.network.plan import SLOT_PREFIX_LENGTH

# One slot per /30; the index also has to fit in an interface name beside the prefix (15 characters in all).
_LARGEST_SLOT_COUNT = 99_999


class NetworkSettings(BaseModel):
    """Where slots live, how many are kept ready, and what guests may reach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: str = Field(
        default="aenv",
        pattern=r"^[a-z][a-z0-9]{0,8}$",
        description="Every namespace, link and nft table of this server is named after it; one per server on a host.",
    )
    network: IPv4Network = Field(
        default=IPv4Network("10.203.0.0/16"),
        description="Private network on the host that slots take their addresses from, four per slot.",
    )
    max_slots: int = Field(
        default=1024, ge=1, le=_LARGEST_SLOT_COUNT, description="Most slots that exist at the same time."
    )
    ready_slots_low: int = Field(default=4, ge=0, description="When fewer slots are ready, more are made.")
    ready_slots_high: int = Field(default=8, ge=0, description="Refill up to, and trim down to, this many ready slots.")
    create_at_once: int = Field(default=4, ge=1, le=64, description="Slots made or taken down in parallel.")
    cool_down_seconds: float = Field(
        default=5.0, ge=0, le=3600, description="How long a released slot rests before it is given out again."
    )
    retry_seconds_max: float = Field(
        default=30.0, gt=0, le=3600, description="Longest pause between attempts to refill the pool."
    )
    host_check_seconds: float = Field(
        default=15.0, gt=0, le=3600, description="How often to put back rules of the host that somebody else flushed."
    )
    uid_base: int = Field(
        default=310_000, ge=1, le=2**31, description="Slot N belongs to user id uid_base + N; nobody else may have it."
    )
    dns_servers: tuple[IPv4Address, ...] = Field(
        default=(),
        max_length=8,
        description="Resolvers for guests, used in turn; empty: the first usable one of this host.",
    )
    allow_private_cidrs: tuple[IPv4Network, ...] = Field(
        default=(), max_length=1024, description="Private ranges that guests may reach all the same."
    )
    deny_cidrs: tuple[IPv4Network, ...] = Field(
        default=(), max_length=1024, description="More ranges that guests may not reach; wins over allow_private_cidrs."
    )
    max_connections_per_slot: int = Field(
        default=4096, ge=16, le=1_000_000, description="Connections that one guest may have open to the outside."
    )
    open_host_firewall: bool = Field(
        default=True,
        description="Accept slot traffic in forward chains of other firewalls whose policy is drop (Docker, ufw).",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.network.prefixlen > SLOT_PREFIX_LENGTH:
            raise ValueError(f"network {self.network} is too small for one slot: use /{SLOT_PREFIX_LENGTH} or larger")
        capacity = self.network.num_addresses >> (32 - SLOT_PREFIX_LENGTH)
        if self.max_slots > capacity:
            raise ValueError(f"network {self.network} has room for {capacity} slots, max_slots is {self.max_slots}")
        if len(self.prefix) + 1 + len(str(self.max_slots - 1)) > 15:
            raise ValueError(f"prefix {self.prefix} is too long for interface names of {self.max_slots} slots")
        if self.network.overlaps(GuestIdentity().network) or not self.network.is_private or self.network.is_loopback:
            raise ValueError(f"network {self.network} must be a private range apart from {GuestIdentity().network}")
        if self.ready_slots_low > self.ready_slots_high:
            raise ValueError("ready_slots_low must not be above ready_slots_high")
        if self.ready_slots_high > self.max_slots:
            raise ValueError("ready_slots_high must not be above max_slots")
        if any(server.is_loopback or server.is_unspecified or server.is_multicast for server in self.dns_servers):
            raise ValueError("dns_servers must be reachable from other network namespaces, so not a loopback address")
        return self
