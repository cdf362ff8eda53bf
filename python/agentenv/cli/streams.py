"""The process's own standard streams inside the event loop: no threads, and no flag changed on what others share."""

import asyncio
import contextlib
import os
import select
import stat
from collections.abc import AsyncIterator

# A pipe that polls as writable takes this much without blocking (PIPE_BUF), and nothing promises more.
_WRITE_BYTES = 4096
_READ_BYTES = 64 * 1024


async def write_all(descriptor: int, content: bytes) -> None:
    """Write `content` and let the loop go on while the reader is slow. Raises `BrokenPipeError` when it has gone."""
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    view = memoryview(content)
    while view:
        if not poller.poll(0):
            await _wait(descriptor, for_writing=True)
        with contextlib.suppress(BlockingIOError):  # another process may have made the shared stream non-blocking
            view = view[os.write(descriptor, view[:_WRITE_BYTES]) :]


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what can be read, as it comes, until the end."""
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if not is_file:  # epoll refuses regular files, which are always ready
            await _wait(descriptor, for_writing=False)
        try:
            chunk = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            continue
        if not chunk:
            return
        yield chunk


def is_forwarded(descriptor: int) -> bool:
    """Return whether somebody feeds this input: a pipe, a socket or a file, not a person or nothing."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


async def _wait(descriptor: int, *, for_writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    if for_writing:
        loop.add_writer(descriptor, ready.set)
    else:
        loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        (loop.remove_writer if for_writing else loop.remove_reader)(descriptor)
