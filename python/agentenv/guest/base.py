"""The seam of `guest`: what the host tells the daemon in a guest, and what boots it."""

from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

DAEMON_PORT = 49983
# The contract's version that our daemon implements in full; SDK features are gated on it (e2b-contract 4.7).
ENVD_VERSION = "0.6.13"


@dataclass(frozen=True, slots=True)
class BootFiles:
    """What a machine boots from: an uncompressed kernel image and our initramfs."""

    kernel: Path
    initramfs: Path


@dataclass(frozen=True, slots=True)
class GuestSetup:
    """What `/init` pushes into a guest after every boot or restore, before any traffic."""

    sandbox_id: str
    template_id: str
    access_token: str
    hostname: str
    environment: dict[str, str] = field(default_factory=dict)
    default_user: str | None = None
    default_workdir: str | None = None


@dataclass(frozen=True, slots=True)
class GuestMetrics:
    """One reading of the guest's own counters; sizes in bytes."""

    timestamp: int
    cpu_count: int
    cpu_used_percent: float
    memory_total: int
    memory_used: int
    memory_cache: int
    disk_total: int
    disk_used: int


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """Where the daemon of a guest answers."""

    host: IPv4Address
    port: int = DAEMON_PORT
