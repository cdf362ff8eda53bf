"""Checks of the host itself: processor, system, memory, disk, devices, programs. Reads only."""

import os
import platform
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from agentenv.base.errors import AgentEnvError
from agentenv.base.units import GIB, MIB, format_bytes
from agentenv.guest.architecture import host_architecture
from agentenv.main.doctor.check import Check, State
from agentenv.main.setup import host
from agentenv.main.setup.errors import HostUnknown
from agentenv.vmm.qemu.binary import find_qemu

_OLDEST_KERNEL = (5, 10)
_SCARCE_MEMORY_BYTES = GIB
_SCARCE_DISK_BYTES = 4 * GIB
_TOO_LITTLE_DISK_BYTES = 512 * MIB
_DEVICES = (
    ("tun", Path("/dev/net/tun"), State.MISSING, "load it: modprobe tun"),
    ("fuse", Path("/dev/fuse"), State.MISSING, "disks are served through it; load it: modprobe fuse"),
    ("ublk", Path("/dev/ublk-control"), State.WARNING, "optional; where the kernel has it: modprobe ublk_drv"),
)


async def examine_system() -> Sequence[Check]:
    """Look at processor, release, kernel and the user we are."""
    return [_architecture(), _release(), _kernel(), _privileges(), *_programs()]


def _architecture() -> Check:
    try:
        return Check("architecture", State.OK, host_architecture())
    except AgentEnvError as error:
        return Check("architecture", State.MISSING, platform.machine(), error.message)


def _release() -> Check:
    release = host.read_release()
    name = release.get("PRETTY_NAME", "unknown")
    try:
        host.find_distribution(release)
    except HostUnknown as error:
        return Check("release", State.WARNING, name, f"{error.message}: install what `programs` names by hand")
    return Check("release", State.OK, name)


def _kernel() -> Check:
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers < _OLDEST_KERNEL:
        return Check("kernel", State.MISSING, release, "a kernel of 5.10 or newer is needed")
    return Check("kernel", State.OK, release)


def _privileges() -> Check:
    if os.geteuid() == 0:
        return Check("privileges", State.OK, "root")
    remedy = "run as root: namespaces, taps and firewall rules need it, and so do some of these checks"
    return Check("privileges", State.MISSING, f"user id {os.geteuid()}", remedy)


def _programs() -> Sequence[Check]:
    try:
        missing = host.missing_commands(host_architecture())
    except AgentEnvError:
        return []
    if not missing:
        return [Check("programs", State.OK, "all there")]
    packages = ", ".join(sorted(set(missing.values())))
    remedy = f"run `aenv setup`, or install {packages}"
    return [Check("programs", State.MISSING, f"missing: {', '.join(sorted(missing))}", remedy)]


async def examine_qemu(configured: str) -> Sequence[Check]:
    """Ask QEMU for its version."""
    try:
        binary = await find_qemu(configured)
    except AgentEnvError as error:
        return [Check("qemu", State.MISSING, "not usable", error.message)]
    return [Check("qemu", State.OK, f"{binary.version_text} ({binary.path})")]


async def examine_resources(home: Path) -> Sequence[Check]:
    """Look at free memory and at the file system of the home directory."""
    return [_memory(), _disk(home), _cgroup()]


def _memory() -> Check:
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(facts[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    value = f"{format_bytes(available)} of {format_bytes(total)} free"
    if available < _SCARCE_MEMORY_BYTES:
        return Check("memory", State.WARNING, value, "little is left for guests: end other programs, or add memory")
    return Check("memory", State.OK, value)


def _disk(home: Path) -> Check:
    existing = next(path for path in (home, *home.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    value = f"{format_bytes(free)} free in {existing}"
    if free >= _SCARCE_DISK_BYTES:
        return Check("disk", State.OK, value)
    state = State.MISSING if free < _TOO_LITTLE_DISK_BYTES else State.WARNING
    return Check("disk", state, value, "free some space, or put `home` on a larger file system")


def _cgroup() -> Check:
    controllers = Path("/sys/fs/cgroup/cgroup.controllers")
    if controllers.is_file():
        return Check("cgroup", State.OK, f"v2: {controllers.read_text().strip() or 'no controllers'}")
    remedy = "without cgroup v2, monitors are not limited; start with systemd.unified_cgroup_hierarchy=1"
    return Check("cgroup", State.WARNING, "no cgroup v2 on /sys/fs/cgroup", remedy)


async def examine_devices() -> Sequence[Check]:
    """Try the device nodes that we use or could use."""
    return [_device(*device) for device in _DEVICES]


def _device(key: str, path: Path, otherwise: State, remedy: str) -> Check:
    try:
        if not stat.S_ISCHR(path.stat().st_mode):
            return Check(key, otherwise, f"{path} is no device", remedy)
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return Check(key, otherwise, f"{path}: {error.strerror}", remedy)
    return Check(key, State.OK, str(path))
