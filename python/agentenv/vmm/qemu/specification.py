"""What a machine may ask of QEMU: checked before anything is started, because QEMU or the guest's kernel would
misread it silently or say so too late."""

from agentenv.vmm.base import MachineSpec
from agentenv.vmm.errors import MachineRefused
from agentenv.vmm.qemu.command_line import CONTROL_SOCKET

# sockaddr_un holds 108 bytes with the final zero.
_SOCKET_PATH_BYTES = 107
# The kernel of x86-64 cuts what is longer; ours and the guest's part share it.
_COMMAND_LINE_BYTES = 1792
_MEMORY_MIB = range(64, 4 * 1024 * 1024)
_VCPUS = range(1, 65)
_DISKS = 8


def check(spec: MachineSpec) -> None:
    """Raise `MachineRefused` when `spec` cannot be started as it is."""
    if spec.vcpus not in _VCPUS:
        raise MachineRefused(f"a machine has {_VCPUS.start} to {_VCPUS.stop - 1} virtual CPUs, not {spec.vcpus}")
    if spec.memory_mib not in _MEMORY_MIB:
        raise MachineRefused(f"a machine needs at least {_MEMORY_MIB.start} MiB of memory, not {spec.memory_mib}")
    if spec.uid <= 0:
        raise MachineRefused(f"a monitor needs a user of its own, not user id {spec.uid}")
    if len(spec.disks) > _DISKS:
        raise MachineRefused(f"a machine has at most {_DISKS} disks, not {len(spec.disks)}")
    if len(spec.command_line.encode()) > _COMMAND_LINE_BYTES:
        raise MachineRefused(f"a guest's kernel command line has at most {_COMMAND_LINE_BYTES} bytes")
    if len(str(spec.directory / CONTROL_SOCKET).encode()) > _SOCKET_PATH_BYTES:
        raise MachineRefused(f"{spec.directory} is too long a path for sockets; choose a shorter home directory")
    for disk in spec.disks:
        if not disk.path.exists():
            raise MachineRefused(f"{disk.path} is missing")
        if not disk.path.is_file() and not disk.path.is_block_device():
            raise MachineRefused(f"{disk.path} is no disk: neither a file nor a block device")
    for path in (spec.kernel, spec.initramfs):
        if not path.is_file():
            raise MachineRefused(f"{path} is missing; `aenv setup` prepares kernel and initramfs")
