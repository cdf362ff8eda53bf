"""Finding monitors of ours among the processes of this machine, and ending what one has left. Reads /proc."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from agentenv.base.process import ProcessIdentity, identify, reap
from agentenv.vmm.qemu.command_line import mark

_OWNER = re.compile(r"^Uid:\s+(\d+)\s", re.MULTILINE)


def end_all_of(owner: int) -> None:
    """Kill every process of a user. A monitor that was taken over may have made copies of itself, and hidden them."""
    for identity in _all_processes():
        if read_owner(identity.pid) == owner:
            identity.kill()
            reap(identity.pid)


def read_owner(pid: int) -> int | None:
    """Return the real user of a process; the owner of its directory in /proc may be another. None: it is gone."""
    try:
        match = _OWNER.search(Path(f"/proc/{pid}/status").read_text(errors="replace"))
    except OSError:
        return None
    return int(match[1]) if match else None


def find_orphans(directory: Path) -> list[ProcessIdentity]:
    """Return every monitor of a machine below `directory`; the caller knows which of them are still wanted."""
    return [identity for identity in _all_processes() if is_monitor_of(identity, directory)]


def _all_processes() -> Iterator[ProcessIdentity]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are wanted, not paths
        # Identified first: a number that changes hands afterwards then fails the comparison of start times.
        identity = identify(int(name)) if name.isdecimal() else None
        if identity is not None:
            yield identity


def is_monitor_of(identity: ProcessIdentity, directory: Path) -> bool:
    """Return whether this process is alive and is a monitor of a machine at or below `directory`."""
    try:
        words = Path(f"/proc/{identity.pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    wanted = os.fsencode(mark(directory))
    return any(word.startswith(wanted) for word in words) and identity.is_alive()
