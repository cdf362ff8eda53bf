"""Named network namespaces, and work inside of them.

Invariant: no thread that serves anything else ever changes its namespace; each job gets a thread that ends with it.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agentenv.base import aio

_T = TypeVar("_T")
_DIRECTORY = Path("/run/netns")
_OWN = "/proc/thread-self/ns/net"
_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_REC, _MS_SHARED = 0x1000, 0x4000, 0x100000
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def path_of(name: str) -> Path:
    """Return the file that stands for the namespace."""
    return _DIRECTORY / name


def listing() -> list[str]:
    """Return the names of all named namespaces of this host."""
    try:
        return sorted(path.name for path in _DIRECTORY.iterdir())
    except FileNotFoundError:
        return []


async def run_in_own_thread(name: str, work: Callable[[], _T]) -> _T:
    """Run `work` in a fresh thread, which may enter namespaces and starts in the one of this process."""
    return await aio.run_in_new_thread(f"network-{name}", work)


def enter(name: str) -> None:
    """Move the calling thread, which must be one made for this, into the namespace."""
    descriptor = os.open(path_of(name), os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter_descriptor(descriptor)
    finally:
        os.close(descriptor)


def enter_descriptor(descriptor: int) -> None:
    """Move the calling thread, made for this, into the namespace that `descriptor` is open on."""
    _call("setns", descriptor, _CLONE_NEWNET)


def create_and_enter(name: str) -> None:
    """Make a namespace that outlives this process and move the calling thread, made for this, into it."""
    _prepare_directory()
    path = path_of(name)
    path.touch(mode=0o444, exist_ok=False)
    try:
        _call("unshare", _CLONE_NEWNET)
        _call("mount", _OWN.encode(), os.fsencode(path), b"none", _MS_BIND, None)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def remove(*names: str) -> None:
    """Forget namespaces; the kernel takes each down when nothing uses it any more. Those not there are no error."""
    for name in names:
        _remove(path_of(name))


def _remove(path: Path) -> None:
    # One mount may lie on another after a crash between mount and use, so all of them go.
    with contextlib.suppress(OSError):
        while True:
            _call("umount2", os.fsencode(path), _MNT_DETACH)
    path.unlink(missing_ok=True)


def is_mounted(name: str) -> bool:
    """Return whether a live namespace stands behind the name."""
    try:
        return path_of(name).stat().st_dev != _DIRECTORY.stat().st_dev
    except FileNotFoundError:
        return False


def _prepare_directory() -> None:
    """Make the directory a shared mount as `ip netns` does, so that an unmount reaches every mount namespace."""
    _DIRECTORY.mkdir(mode=0o755, exist_ok=True)
    directory = os.fsencode(_DIRECTORY)
    try:
        _call("mount", b"", directory, b"none", _MS_SHARED | _MS_REC, None)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _call("mount", directory, directory, b"none", _MS_BIND | _MS_REC, None)
        _call("mount", b"", directory, b"none", _MS_SHARED | _MS_REC, None)


def _call(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
