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
# Whoever writes more than a chunk in this time fills the pipe: a flood costs its writer words, and us nothing.
_PAUSE_SECONDS = 0.05


class ErrorPipe:
    """The reading end; keeps the end of what came."""

    def __init__(self, descriptor: int, writing: int = -1) -> None:
        self._descriptor = descriptor
        self._writing = writing
        self._tail = b""
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

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

    def _listen(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._descriptor, self._read_and_pause)

    def _read_and_pause(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._descriptor)
        self._read()
        if self._descriptor >= 0:
            self._pause = loop.call_later(_PAUSE_SECONDS, self._listen)

    def _read(self) -> bool:
        """Take a chunk in; return whether there was one."""
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
        if not chunk:
            self.close()
        return bool(chunk)

    def text(self) -> str:
        """Return the end of what came so far, made printable."""
        # Bounded: twice what a pipe holds. A monitor that writes faster than that is not waited for.
        for _ in range(2 * 65536 // _CHUNK_BYTES):
            if self._descriptor < 0 or not self._read():
                break
        return make_printable(self._tail.decode(errors="backslashreplace"))

    def close(self) -> None:
        """Close the pipe; `text` stays. Can be called again."""
        self._close_writing()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _close_writing(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1
