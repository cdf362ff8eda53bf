"""The words that start QEMU for one machine. Pure: from values to words, nothing is looked up.

Invariant: devices stand in one order and every node has a name, so that a state saved by one process fits another that
was started with the same specification.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.units import MIB
from agentenv.vmm.base import Accelerator, DiskAttachment, MachineSpec
from agentenv.vmm.qemu.architecture import Architecture, board

CONSOLE_SOCKET = "console.sock"
CONSOLE_LOG = "console.log"
CONTROL_SOCKET = "monitor/qmp.sock"
PRELOAD_SOCKET = "monitor/preload.sock"
# By this the preload library learns of its socket.
PRELOAD_VARIABLE = "AENV_PRELOAD_SOCKET"
# The monitor is started with the tap opened already: it needs no right to open any.
TAP_DESCRIPTOR = 3
# What marks a process as a monitor of ours, followed by the machine's directory.
MARK = "socket,id=control,path="

_RECONNECT_IN_MILLISECONDS_SINCE = (9, 2, 0)
# The self-tests of ciphers, and a random source that only certified systems use: a third of an emulated boot.
_QUICK_BOOT = ("cryptomgr.notests", "initcall_blacklist=jent_mod_init")
_ENTROPY_BYTES_PER_SECOND = 64 * 1024
_GLOBALS = ("virtio-mmio.force-legacy=false",)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What of the host and of its QEMU the words, and states, depend on.

    `tsc_khz` is None where a guest needs no hint. `preload` is the library for live captures, where there is one.
    """

    program: Path
    version: tuple[int, int, int]
    architecture: Architecture
    accelerator: Accelerator
    tsc_khz: int | None
    translation_cache_mib: int
    processor: str
    preload: Path | None = None


def build(host: HostFacts, spec: MachineSpec, memory_image: Path | None = None) -> list[str]:
    """Return the program and its arguments: for a boot, or to go on with a state over a memory image."""
    return [
        *_preloading(host, spec),
        str(host.program),
        *("-name", f"guest={_escape(spec.name)},debug-threads=on"),
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none", "-msg", "timestamp=on", "-sandbox", _seccomp(host)),
        *_processor_and_memory(host, spec, memory_image),
        *_sockets(host, spec),
        *(_to_boot(host, spec) if memory_image is None else _to_go_on()),
        *_devices(spec),
    ]


def _preloading(host: HostFacts, spec: MachineSpec) -> list[str]:
    if host.preload is None:
        return []
    socket = spec.directory / PRELOAD_SOCKET
    return ["env", f"LD_PRELOAD={host.preload}", f"{PRELOAD_VARIABLE}={socket}"]


def _seccomp(host: HostFacts) -> str:
    # The library has a filter of its own, which denies the same but for the copies that it makes.
    spawn = "deny" if host.preload is None else "allow"
    return f"on,obsolete=deny,elevateprivileges=deny,spawn={spawn},resourcecontrol=deny"


def _to_boot(host: HostFacts, spec: MachineSpec) -> list[str]:
    return [
        *("-kernel", str(spec.kernel), "-initrd", str(spec.initramfs)),
        *("-append", kernel_command_line(host, spec.command_line)),
    ]


def _to_go_on() -> list[str]:
    # The state is one of the devices alone, which has none of the frame around an ordinary one.
    return ["-incoming", "defer", "-global", "migration.send-configuration=off", "-machine", "suppress-vmdesc=on"]


def state_descriptor(spec: MachineSpec) -> int:
    """Return the number under which a monitor gets the state that it goes on with."""
    return TAP_DESCRIPTOR if spec.network is None else TAP_DESCRIPTOR + 1


def kernel_command_line(host: HostFacts, guest_part: str) -> str:
    """Return the kernel's command line: what this machine needs, then the guest's own part."""
    words = [f"console={board(host.architecture, host.accelerator).console}", "quiet", "panic=-1", *_QUICK_BOOT]
    if host.architecture is Architecture.X86_64:
        # A panic or a reboot ends the machine at once, by the one way that every x86 has: a triple fault.
        words.append("reboot=t")
        if host.accelerator is Accelerator.TCG:
            # Patching locks out of a kernel for one processor makes the emulator translate it twice.
            words.append("noreplace-smp")
    if host.tsc_khz is not None:
        # An emulated guest cannot measure the host's time stamp counter on a busy host, and hangs when that fails.
        # Nor can it judge that counter by ticks which come late there: it would fall back on counting them.
        words += [f"tsc_early_khz={host.tsc_khz}", "tsc=reliable"]
    return " ".join([*words, guest_part]).strip()


def layout(host: HostFacts, spec: MachineSpec) -> str:
    """Return, as text, all that the saved state of the devices depends on."""
    target = board(host.architecture, host.accelerator)
    parts = {
        "machine": target.machine,
        "cpu": target.cpu,
        "vcpus": spec.vcpus,
        "memory_mib": spec.memory_mib,
        "devices": [*_GLOBALS, *_list_devices(spec)],
    }
    return json.dumps(parts, sort_keys=True)


def _processor_and_memory(host: HostFacts, spec: MachineSpec, memory_image: Path | None) -> list[str]:
    target = board(host.architecture, host.accelerator)
    match host.accelerator:
        case Accelerator.KVM:
            accelerator = "kvm"
        case Accelerator.TCG:
            accelerator = f"tcg,thread=multi,tb-size={host.translation_cache_mib}"
    size = {"id": "ram", "size": spec.memory_mib * MIB, "dump": False, "merge": False}
    if memory_image is None:
        memory = {"qom-type": "memory-backend-ram", **size}
    else:
        memory = {"qom-type": "memory-backend-file", "mem-path": str(memory_image), "share": False, **size}
    return [
        *("-machine", ",".join((*target.machine, "memory-backend=ram"))),
        *("-accel", accelerator, "-cpu", target.cpu),
        *("-smp", f"cpus={spec.vcpus},sockets=1,cores={spec.vcpus},threads=1"),
        *("-m", f"{spec.memory_mib}M", "-object", _json(memory)),
    ]


def _sockets(host: HostFacts, spec: MachineSpec) -> list[str]:
    console = _escape(str(spec.directory / CONSOLE_SOCKET))
    is_newer = host.version >= _RECONNECT_IN_MILLISECONDS_SINCE
    reconnect = "reconnect-ms=1000" if is_newer else "reconnect=1"
    return [
        *("-chardev", f"{mark(spec.directory)}{CONTROL_SOCKET},server=on,wait=off"),
        *("-mon", "chardev=control,mode=control"),
        *("-chardev", f"socket,id=console,path={console},{reconnect}"),
        *("-serial", "chardev:console"),
    ]


def mark(directory: Path) -> str:
    """Return how the argument begins by which a monitor of the machines in `directory` is known."""
    return f"{MARK}{_escape(str(directory))}/"


def _devices(spec: MachineSpec) -> list[str]:
    words = [word for setting in _GLOBALS for word in ("-global", setting)]
    for number, disk in enumerate(spec.disks):
        words += _disk_nodes(f"disk{number}", disk)
    if spec.network is not None:
        words += ["-netdev", f"tap,id=link0,fd={TAP_DESCRIPTOR},vhost=off"]
    words += ["-object", _json({"qom-type": "rng-random", "id": "entropy", "filename": "/dev/urandom"})]
    # QEMU gives out its buses in this order, and the guest counts its disks in it. Naming the buses would reverse the
    # count under microvm, whose bus 0, moreover, never delivers an interrupt.
    for device in _list_devices(spec):
        words += ["-device", _json(device)]
    return words


def _list_devices(spec: MachineSpec) -> list[dict[str, object]]:
    """Return the devices in their order, with nothing in them that differs between machines of one layout but the
    address of the network card, which all guests share."""
    devices: list[dict[str, object]] = []
    for number in range(len(spec.disks)):
        # An error of the host's disk is the guest's to see; by default QEMU would silently stop the machine.
        errors: dict[str, object] = {"rerror": "report", "werror": "report"}
        options: dict[str, object] = {"discard": True, "write-zeroes": True, **errors}
        devices.append({"driver": "virtio-blk-device", "id": f"disk{number}", "drive": f"disk{number}", **options})
    if spec.network is not None:
        devices.append({"driver": "virtio-net-device", "id": "net0", "netdev": "link0", "mac": spec.network.mac})
    rate: dict[str, object] = {"max-bytes": _ENTROPY_BYTES_PER_SECOND, "period": 1000}
    devices.append({"driver": "virtio-rng-device", "id": "rng0", "rng": "entropy", **rate})
    # Without `page-poison` a guest that relies on zeros in what it has freed does not report it: after a restore a
    # page that was given back reads as the template again.
    balloon: dict[str, object] = {"free-page-reporting": True, "deflate-on-oom": True, "page-poison": False}
    devices.append({"driver": "virtio-balloon-device", "id": "balloon0", **balloon})
    return devices


def _disk_nodes(name: str, disk: DiskAttachment) -> list[str]:
    """Return the two nodes of a disk: `<name>` is what the guest reads, `<name>-file` is the file below it."""
    # The host's page cache is shared by all guests of one base, so the file goes through it. A scratch disk is
    # worth nothing after the host went down, so its guest need not wait for the host's disk either.
    # A block device is an image of the block daemon's, which keeps the pages of its layers; a second copy would only
    # hold writes back from it.
    is_device = disk.path.is_block_device()
    cache = {"direct": is_device, "no-flush": disk.is_scratch}
    common: dict[str, object] = {"read-only": disk.read_only, "discard": "unmap", "cache": cache}
    driver = "host_device" if is_device else "file"
    file = {"driver": driver, "node-name": f"{name}-file", "filename": str(disk.path), "aio": "threads", **common}
    image = {"driver": "raw", "node-name": name, "file": f"{name}-file", **common}
    return ["-blockdev", _json(file), "-blockdev", _json(image)]


def _json(value: dict[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _escape(text: str) -> str:
    """Return `text` as a value in QEMU's comma-separated options."""
    return text.replace(",", ",,")
