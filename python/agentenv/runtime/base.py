"""The seam of `runtime`: what it takes to start or capture one sandbox, and what a live one is."""

from dataclasses import dataclass
from pathlib import Path

from agentenv.base.ids import SandboxId, SnapshotId
from agentenv.blocks.base import SealedLayer, Stack
from agentenv.guest.base import GuestAddress, GuestMetrics, GuestSetup
from agentenv.network.base import EgressPolicy
from agentenv.vmm.base import CapturedMemory, MachineFacts, MachineHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """Start from the kernel, on a new disk over `disk`."""

    disk: Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Go on where a machine was captured.

    `memory_name` says which content `memory` has, so that all who restore it share one image. `token` is what the
    daemon in that memory still asks for.
    """

    disk: Stack
    memory: Stack
    memory_name: str
    device_state: Path
    facts: MachineFacts
    token: str


Origin = Boot | Restore


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that is decided before the first resource of a sandbox is taken."""

    sandbox_id: SandboxId
    origin: Origin
    vcpus: int
    memory_mib: int
    egress: EgressPolicy
    setup: GuestSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePlan:
    """What to capture of a live sandbox, and where to.

    `into` is an empty directory. `below` are the files of the memory layers that the machine's memory is a change of;
    None writes all of it. `needs_guest` refuses the capture when the daemon does not answer. `stay_stopped` leaves
    the machine standing still, for `Live.go_on` or its end.
    """

    snapshot_id: SnapshotId
    into: Path
    token: str
    with_memory: bool
    below: tuple[Path, ...] | None
    needs_guest: bool = False
    stay_stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A finished capture: all files are durable.

    `layer` is the disk's newest one, `stack` all of its layers. `guest_answered` tells whether the guest's file
    system was written out before.
    """

    layer: SealedLayer
    stack: Stack
    memory: CapturedMemory | None
    device_state: Path | None
    guest_answered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHandle:
    """What must be written down so that a later process can take a live sandbox over."""

    slot_index: int
    machine: MachineHandle
    memory_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptPlan:
    """What a later process knows of a sandbox that an earlier one started.

    `token` opens its daemon when a capture may have been under way, and its machine may stand still.
    """

    sandbox_id: SandboxId
    egress: EgressPolicy
    handle: LiveHandle
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A live sandbox is no more: one word for the cause (`vmm.EndCause`, or `disk_lost`) and one sentence."""

    cause: str
    detail: str


__all__ = [
    "AdoptPlan",
    "Boot",
    "CapturePlan",
    "Captured",
    "Ended",
    "GuestAddress",
    "GuestMetrics",
    "LaunchPlan",
    "LiveHandle",
    "Origin",
    "Restore",
]
