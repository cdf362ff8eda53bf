"""The directory of one machine: who may write what in it."""

import contextlib
import os
from pathlib import Path

from agentenv.vmm.qemu.command_line import CONTROL_SOCKET, PRELOAD_SOCKET


def prepare(directory: Path, owner: int) -> None:
    """Make the directory ours, and a room in it the monitor's.

    A monitor that its guest has taken over can then put no link where we write, and no socket where we listen.
    """
    directory.mkdir(parents=True, exist_ok=True)
    os.chown(directory, 0, 0)
    directory.chmod(0o711)
    room = (directory / CONTROL_SOCKET).parent
    room.mkdir(exist_ok=True)
    os.chown(room, owner, owner)
    room.chmod(0o700)
    remove_sockets(directory)


def remove_sockets(directory: Path) -> None:
    """Remove the sockets that a dead monitor leaves. One that was taken over may have left anything in their place."""
    for name in (CONTROL_SOCKET, PRELOAD_SOCKET):
        with contextlib.suppress(OSError):
            (directory / name).unlink()


def owner_of(directory: Path) -> int:
    """Return the user of the monitor: nobody else can have given its room away."""
    return (directory / CONTROL_SOCKET).parent.stat().st_uid
