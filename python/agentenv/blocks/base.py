"""The seam of `blocks`: what a disk is, and what a store of disks promises."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from agentenv.base.ids import SandboxId


class DiskFormat(StrEnum):
    """How the bytes of a disk file are arranged."""

    RAW = "raw"
    QCOW2 = "qcow2"


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that a virtual machine can open now. `size_bytes` is what the guest sees."""

    path: Path
    format: DiskFormat
    size_bytes: int


class BlockStore(Protocol):
    """Makes a sandbox's writable disk over a read-only base and takes it back.

    Promises: the base is never written; `create` leaves a whole disk or nothing; `remove` can be called again.
    """

    async def create(self, sandbox_id: SandboxId, base: Path, *, owner: int) -> Disk:
        """Return a new writable disk over the raw image `base`, readable and writable by user id `owner`."""
        ...

    async def find(self, sandbox_id: SandboxId) -> Disk | None:
        """Return the disk of a sandbox, if it has one."""
        ...

    async def remove(self, sandbox_id: SandboxId) -> None:
        """Delete the disk of a sandbox, if it has one."""
        ...

    async def collect(self, keep: frozenset[SandboxId]) -> list[str]:
        """Delete what belongs to no sandbox in `keep` (leftovers of a killed server); return the names removed."""
        ...
