"""Access to /dev/kvm: which modules stand behind it, and whether a monitor without privileges could open it."""

import os
import stat
from pathlib import Path

_DEVICE = Path("/dev/kvm")
_MODULES = Path("/sys/module")


def groups() -> tuple[int, ...]:
    """Return the groups that a monitor needs to open /dev/kvm. Root's is not among them: no monitor gets that one."""
    try:
        entry = _DEVICE.stat()
    except FileNotFoundError:
        return ()
    return (entry.st_gid,) if _is_open_to_group(entry) and entry.st_gid != 0 else ()


def find_obstacle() -> str | None:
    """Return why no monitor could open /dev/kvm, or None when nothing speaks against trying."""
    try:
        entry = _DEVICE.stat()
    except FileNotFoundError:
        return "/dev/kvm does not exist: this host offers no hardware virtualisation, or its kvm module is not loaded"
    is_open_to_all = entry.st_mode & 0o006 == 0o006
    if is_open_to_all or (_is_open_to_group(entry) and entry.st_gid != 0):
        return None
    return (
        f"/dev/kvm is closed to monitors, which run without privileges (mode {stat.S_IMODE(entry.st_mode):04o}, "
        f"group {entry.st_gid}); `chgrp kvm /dev/kvm && chmod 0660 /dev/kvm` opens it"
    )


def modules() -> str:
    """Return the names of the kernel's modules for virtual machines: `kvm, kvm_amd`."""
    return ", ".join(_module_names()) or "built in"


def identity() -> str:
    """Return a text that changes when another KVM stands behind the device, or other users may open it."""
    sources = [_MODULES / name / "srcversion" for name in _module_names()]
    versions = [source.read_text().strip() for source in sources if source.is_file()]
    return f"{modules()} {versions} {find_obstacle()}"


def _module_names() -> list[str]:
    return sorted(name for name in os.listdir(_MODULES) if name.split("_")[0] == "kvm")  # noqa: PTH208 - names only


def _is_open_to_group(entry: os.stat_result) -> bool:
    return entry.st_mode & 0o060 == 0o060
