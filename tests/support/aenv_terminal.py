"""The command `aenv` in a terminal of its own, driven from the other end."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from support import aenv

# The child takes the terminal as its controlling one, so that the kernel tells it of changes of size.
_TAKE_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "


class AenvTerminal:
    """The user's side of the terminal."""

    def __init__(self, master: int, slave: int, child: asyncio.subprocess.Process) -> None:
        self._master = master
        self._slave = slave
        self.child = child
        self.shown = b""

    async def until(self, expected: bytes) -> bytes:
        """Read what is shown until `expected` has appeared, and return all that was shown."""
        while expected not in self.shown:
            self.shown += await asyncio.to_thread(os.read, self._master, 65536)
        return self.shown

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def resize(self, columns: int, rows: int) -> None:
        set_size(self._master, columns, rows)

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def make_cooked(self) -> None:
        """Do to the terminal what a shell does when it takes it back."""
        attributes = termios.tcgetattr(self._slave)
        attributes[3] |= termios.ICANON | termios.ECHO | termios.ISIG
        termios.tcsetattr(self._slave, termios.TCSANOW, attributes)

    def attributes(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    async def end(self) -> int:
        """Wait for the end and return the exit code; what is still shown is read."""
        code = await self.child.wait()
        os.set_blocking(self._master, False)
        with suppress(BlockingIOError):
            self.shown += os.read(self._master, 65536)
        return code


def set_size(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@asynccontextmanager
async def in_terminal(*words: str, environment: Mapping[str, str]) -> AsyncIterator[AenvTerminal]:
    """Start `aenv` in a new terminal of 90 columns and 30 rows."""
    master, slave = pty.openpty()
    set_size(master, 90, 30)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        _TAKE_TERMINAL + aenv.ENTRY,
        *words,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environment, "TERM": "xterm", "NO_COLOR": "1"},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(30):
            yield AenvTerminal(master, slave, child)
    finally:
        if child.returncode is None:
            child.kill()
        # Closing the last slave first wakes a thread that still reads the master.
        await child.wait()
        os.close(slave)
        os.close(master)
