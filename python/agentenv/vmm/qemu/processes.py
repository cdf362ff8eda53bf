"""Finding monitors of ours among the processes of this machine. Reads /proc, ends nothing."""

import os
from pathlib import Path

from agentenv.base.process import ProcessIdentity, identify
from agentenv.vmm.qemu.command_line import mark


def find_orphans(directory: Path) -> list[ProcessIdentity]:
    """Return every monitor of a machine below `directory`; the caller knows which of them are still wanted."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are wanted, not paths
        if name.isdecimal():
            # Identified first: a number that changes hands in between then fails the comparison of start times.
            identity = identify(int(name))
            if identity is not None and is_monitor_of(identity, directory):
                found.append(identity)
    return found


def is_monitor_of(identity: ProcessIdentity, directory: Path) -> bool:
    """Return whether this process is alive and is a monitor of a machine at or below `directory`."""
    try:
        words = Path(f"/proc/{identity.pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    wanted = os.fsencode(mark(directory))
    return any(word.startswith(wanted) for word in words) and identity.is_alive()
