"""What differs between the processors that guests run on. Pure values."""

from dataclasses import dataclass
from enum import StrEnum

from agentenv.vmm.base import Accelerator


class Architecture(StrEnum):
    """A processor architecture, by the name that the kernel and QEMU use."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


@dataclass(frozen=True, slots=True)
class Board:
    """A machine type of QEMU: its options, its processor, and where its kernel finds the console."""

    machine: tuple[str, ...]
    cpu: str
    console: str


def board(architecture: Architecture, accelerator: Accelerator) -> Board:
    """Return the smallest board on which an ordinary kernel boots, per architecture and accelerator."""
    is_kvm = accelerator is Accelerator.KVM
    match architecture:
        case Architecture.X86_64:
            # The clock chip stays: without it the kernel waits two seconds for one.
            options = ("microvm", "acpi=on", "pcie=off", "usb=off", "rtc=on")
            # Emulated string instructions move a byte at a time. A kernel that takes them for fast copies with them, at
            # a sixth of the speed that its other way has (memcpy: 0.6 against 3.6 GB/s, pipes: 0.2 against 0.9).
            return Board(options, "host" if is_kvm else "max,-erms,-fsrm", "ttyS0")
        case Architecture.AARCH64:
            controller = "gic-version=host" if is_kvm else "gic-version=3"
            # The architected pointer authentication costs an emulated guest half of its speed.
            return Board(
                ("virt", controller, "usb=off", "its=off"), "host" if is_kvm else "max,pauth-impdef=on", "ttyAMA0"
            )
