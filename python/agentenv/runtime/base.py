"""The seam of `runtime`: what it takes to start one sandbox, and what a live one is."""

from dataclasses import dataclass

from agentenv.base.ids import SandboxId
from agentenv.guest.base import GuestAddress, GuestMetrics, GuestSetup
from agentenv.images.base import Image
from agentenv.network.base import EgressPolicy
from agentenv.vmm.base import MachineHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that is decided before the first resource of a sandbox is taken."""

    sandbox_id: SandboxId
    image: Image
    vcpus: int
    memory_mib: int
    egress: EgressPolicy
    setup: GuestSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHandle:
    """What must be written down so that a later process can take a live sandbox over."""

    slot_index: int
    machine: MachineHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptPlan:
    """What a later process knows of a sandbox that an earlier one started."""

    sandbox_id: SandboxId
    egress: EgressPolicy
    handle: LiveHandle


@dataclass(frozen=True, slots=True)
class Ended:
    """A live sandbox is no more: one word for the cause (closed set of `vmm.EndCause`) and one sentence."""

    cause: str
    detail: str


__all__ = ["AdoptPlan", "Ended", "GuestAddress", "GuestMetrics", "LaunchPlan", "LiveHandle"]
