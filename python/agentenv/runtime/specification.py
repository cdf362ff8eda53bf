"""What a driver is told of the machine of a plan. Pure."""

from dataclasses import dataclass
from pathlib import Path

from agentenv.blocks.base import Disk
from agentenv.guest.base import BootFiles
from agentenv.network.base import GuestIdentity, Slot
from agentenv.runtime.base import LaunchPlan
from agentenv.vmm.base import DiskAttachment, MachineSpec, TapAttachment


@dataclass(frozen=True, slots=True)
class Place:
    """Where a machine is put: what is a different one each time."""

    directory: Path
    slot: Slot
    disk: Disk


def machine_spec(plan: LaunchPlan, boot_files: BootFiles, place: Place) -> MachineSpec:
    """Return the specification of a plan's machine."""
    slot, disk = place.slot, place.disk
    return MachineSpec(
        name=plan.sandbox_id,
        directory=place.directory,
        kernel=boot_files.kernel,
        initramfs=boot_files.initramfs,
        command_line=guest_command_line(slot.guest, plan.setup.hostname),
        vcpus=plan.vcpus,
        memory_mib=plan.memory_mib,
        # Worth nothing once the host went down: what is kept of a sandbox are its captures.
        disks=(DiskAttachment(disk.path, is_scratch=True),),
        network=TapAttachment(slot.namespace, slot.tap, slot.guest.mac),
        uid=slot.owner,
    )


def guest_command_line(guest: GuestIdentity, hostname: str) -> str:
    """Return what our initramfs reads from the kernel command line: address, gateway, resolver, host name."""
    return " ".join(
        (
            f"aenv.address={guest.address}/{guest.network.prefixlen}",
            f"aenv.gateway={guest.gateway}",
            f"aenv.dns={guest.gateway}",
            f"aenv.hostname={hostname}",
        )
    )
