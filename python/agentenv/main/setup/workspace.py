"""Setup's own place under the home directory: one run at a time, and scratch room that is always clean."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from agentenv.base import mounts, process
from agentenv.base.clock import Clock
from agentenv.main.setup.step import Say

_POLL_SECONDS = 0.2


@contextlib.asynccontextmanager
async def open_workspace(home: Path, clock: Clock, say: Say) -> AsyncIterator[Path]:
    """Wait until no other setup runs on `home`, then hand out an empty scratch directory on its file system."""
    own = home / "setup"
    # The monitors run as users without rights, and must reach the kernel and the disks.
    own.mkdir(parents=True, exist_ok=True, mode=0o755)
    descriptor = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await _lock(descriptor, clock, say)
        work = own / "work"
        await clear(work)
        work.mkdir(mode=0o755)
        try:
            yield work
        finally:
            await clear(work)
    finally:
        os.close(descriptor)


async def _lock(descriptor: int, clock: Clock, say: Say) -> None:
    is_told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not is_told:
                say("another setup is running; waiting for it")
                is_told = True
            await clock.sleep(_POLL_SECONDS)
        else:
            return


async def clear(directory: Path) -> None:
    """Remove `directory`, and first whatever is mounted in it: a removal must not reach through a mount."""
    for point in mounts.below(directory):
        await process.run(["umount", "--lazy", point])
    if directory.exists():
        shutil.rmtree(directory)
