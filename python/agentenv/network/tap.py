"""Tap devices, through the tun driver's own calls (netlink cannot make them)."""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_TUNSETIFF = 0x400454CA
_TUNSETPERSIST = 0x400454CB
_TUNSETOWNER = 0x400454CC
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000


def create(name: str, owner: int) -> None:
    """Make a tap in the calling thread's namespace that stays when it is closed and that `owner` may open."""
    with attached(name) as descriptor:
        fcntl.ioctl(descriptor, _TUNSETOWNER, owner)
        fcntl.ioctl(descriptor, _TUNSETPERSIST, 1)


@contextmanager
def attached(name: str) -> Iterator[int]:
    """Hold the tap, as a monitor does. Raises `OSError` EBUSY while somebody else holds it."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(
            descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR)
        )
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(name: str) -> bool:
    """Return whether somebody holds the tap of the calling thread's namespace."""
    try:
        with attached(name):
            return False
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return True
