"""What a monitor writes to its standard error: a pipe that costs no disk and outlives us.

The monitor's end never blocks. While nobody reads, a full pipe drops what comes; a closed one fails quietly.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator

from agentenv.vmm.console import make_printable

_CHUNK_BYTES = 4096
_TAIL_BYTES = 8192


class ErrorPipe:
    """The reading end; keeps the end of what came."""

    def __init__(self, descriptor: int, writing: int = -1) -> None:
        self._descriptor = descriptor
        self._writing = writing
        self._tail = b""
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    @classmethod
    def open_new(cls) -> "ErrorPipe":
        """Return a new pipe."""
        return cls(*os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))

    @contextlib.contextmanager
    def writing_end(self) -> Iterator[int]:
        """Lend the writing end of a new pipe, once, to whoever starts the monitor."""
        try:
            yield self._writing
        finally:
            self._close_writing()

    @classmethod
    def open_again(cls, pid: int) -> "ErrorPipe":
        """Return another reading end of the pipe that the monitor `pid` writes to. Raises `OSError` without one."""
        return cls(os.open(f"/proc/{pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
            if not chunk:
                self.close()

    def text(self) -> str:
        """Return the end of what came so far, made printable."""
        # Bounded: twice what a pipe holds. A monitor that writes faster than that is not waited for.
        for _ in range(2 * 65536 // _CHUNK_BYTES):
            if self._descriptor < 0:
                break
            before = self._tail
            self._read()
            if self._tail == before:
                break
        return make_printable(self._tail.decode(errors="backslashreplace"))

    def close(self) -> None:
        """Close the pipe; `text` stays. Can be called again."""
        self._close_writing()
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _close_writing(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1
