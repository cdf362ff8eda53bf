"""The user's own terminal: raw while a remote one is shown in it, and as it was afterwards, whatever happens."""

import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections.abc import AsyncIterator, Iterator

from agentenv.cli.streams import read_chunks, write_all
from agentenv.client.base import TerminalSize

# What a program that died over there cannot switch off any more: mouse reports, bracketed paste, colours, a hidden
# cursor.
_RESET = b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m\x1b[?25h"


class Terminal:
    """A terminal in raw mode: `source` is where its keys come from, `target` what shows output."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._resized = asyncio.Event()

    def keys(self) -> AsyncIterator[bytes]:
        """Yield what is typed, as it comes."""
        return read_chunks(self._source)

    async def show(self, content: bytes) -> None:
        """Write output as it is."""
        await write_all(self._target, content)

    async def tell(self, note: str) -> None:
        """Write a note of our own on a line of its own."""
        await self.show(f"aenv: {note}\r\n".encode())

    def size(self) -> TerminalSize:
        """Return the size now; the customary one where the terminal does not know its own."""
        columns, rows = os.get_terminal_size(self._target)
        return TerminalSize(columns or 80, rows or 24)

    async def sizes(self) -> AsyncIterator[TerminalSize]:
        """Yield the size each time that it has changed; changes in between are left out."""
        while True:
            await self._resized.wait()
            self._resized.clear()
            yield self.size()

    def reset(self) -> None:
        """Undo what a remote program may have left switched on, and begin a new line."""
        with contextlib.suppress(OSError):
            os.write(self._target, _RESET + b"\r\n")

    def enter_raw(self) -> None:
        """Pass keys on as they are, signals among them."""
        tty.setraw(self._source, termios.TCSANOW)

    def note_resize(self) -> None:
        """Wake who waits for sizes."""
        self._resized.set()

    def note_continued(self) -> None:
        """Take the terminal back from the shell that had it while this process was stopped."""
        with contextlib.suppress(termios.error):
            self.enter_raw()
        self.note_resize()


@contextlib.contextmanager
def raw_terminal(source: int, target: int) -> Iterator[Terminal]:
    """Put the terminal into raw mode for as long as the context lasts."""
    before = termios.tcgetattr(source)
    loop = asyncio.get_running_loop()
    terminal = Terminal(source, target)
    loop.add_signal_handler(signal.SIGWINCH, terminal.note_resize)
    loop.add_signal_handler(signal.SIGCONT, terminal.note_continued)
    try:
        terminal.enter_raw()
        yield terminal
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGCONT)
        with contextlib.suppress(termios.error):  # the terminal itself may be gone
            # At once: to wait for the output to drain is to wait for a terminal that may read no more.
            termios.tcsetattr(source, termios.TCSANOW, before)
