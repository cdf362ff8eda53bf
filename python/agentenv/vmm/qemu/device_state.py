"""The file in which a monitor writes the state of its devices. A monitor may have been taken over: nothing of it is
trusted."""

import os
import stat
from pathlib import Path

from agentenv.vmm.errors import CaptureFailed

# In the room of the monitor, the only place where it may write.
SAVED_STATE = "monitor/device-state"
# An ordinary state has a hundred kilobytes.
_LIMIT_BYTES = 64 * 1024 * 1024


def take(directory: Path, target: Path) -> None:
    """Move what the monitor has written to a new file of ours. Raises `CaptureFailed`, or `OSError` on `target`."""
    content = _read(directory / SAVED_STATE)
    discard(directory)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        try:
            file.write(content)
        except OSError:
            target.unlink()
            raise


def discard(directory: Path) -> None:
    """Remove what the monitor has written, if anything."""
    (directory / SAVED_STATE).unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CaptureFailed(f"the monitor left no state of its devices: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or not 0 < facts.st_size <= _LIMIT_BYTES:
            raise CaptureFailed("what the monitor left is no state of its devices")
        return file.read(_LIMIT_BYTES)
