"""Opening a tap device of another network namespace, to be handed to a monitor that may open nothing itself."""

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from agentenv.base import aio
from agentenv.vmm.base import TapAttachment
from agentenv.vmm.errors import BootFailed
from agentenv.vmm.qemu.confinement import namespace_path

_DEVICE = Path("/dev/net/tun")
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
# A tap without a protocol header of its own, but with the one by which virtio passes on unfinished checksums.
_FLAGS = 0x0002 | 0x1000 | 0x4000
_REQUEST = struct.Struct("16sH22x")


async def open_tap(attachment: TapAttachment) -> int:
    """Return a descriptor of the tap. Raises `BootFailed` when it cannot be had: missing, or held by another."""

    opened: list[int] = []

    def enter_and_open() -> int:
        _enter(namespace_path(attachment.namespace))
        opened.append(_attach(attachment.tap))
        return opened[0]

    try:
        # A namespace is entered by a thread; this one ends with the work, so that nothing else ever runs inside.
        return await aio.run_in_new_thread("open-tap", enter_and_open)
    except OSError as error:
        where = f"tap {attachment.tap} of namespace {attachment.namespace}"
        raise BootFailed(f"{where} could not be opened: {error.strerror or error}") from error
    except asyncio.CancelledError:
        for descriptor in opened:
            os.close(descriptor)
        raise


def _enter(path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


def _attach(name: str) -> int:
    socket.if_nametoindex(name)  # the ioctl below would make a device that is not there
    descriptor = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, _REQUEST.pack(name.encode(), _FLAGS))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
