"""The directory of one machine: who may write what in it."""

import contextlib
import os
from pathlib import Path

from agentenv.vmm.qemu.command_line import CONTROL_SOCKET


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
    remove_control_socket(directory)


def remove_control_socket(directory: Path) -> None:
    """Remove the socket that a dead monitor leaves. One that was taken over may have left anything in its place."""
    with contextlib.suppress(OSError):
        (directory / CONTROL_SOCKET).unlink()
