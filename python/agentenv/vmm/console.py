"""What a guest writes to its console: kept as printable text, bounded on disk and in memory. Knows no monitor."""

import codecs
import contextlib
import os
import re
from pathlib import Path

from agentenv.base import log

_log = log.get("vmm")
_TAIL_CHARACTERS = 16 * 1024
_SUSPECT = re.compile(r"[^\x20-\x7e\n\t]")


class ConsoleLog:
    """The end of a console, in two files of half the limit each: `<path>` and, before it, `<path>.old`.

    Everything is made printable before it is kept, so that showing it cannot command a terminal.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._path = path
        self._half_bytes = limit_bytes // 2
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._descriptor, self._size = _open(path)
        self._tail = _read_end(path.with_name(path.name + ".old")) + _read_end(path)
        self._tail = self._tail[-_TAIL_CHARACTERS:]
        self._is_failing = False

    def append(self, chunk: bytes) -> None:
        """Keep what the guest wrote. A full disk costs the file, never the guest or the caller."""
        text = make_printable(self._decoder.decode(chunk))
        self._tail = (self._tail + text)[-_TAIL_CHARACTERS:]
        try:
            self._write(text.encode())
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                _log.warning("console_log_failed", path=str(self._path), reason=error.strerror)
            self._is_failing = True

    def _write(self, content: bytes) -> None:
        for start in range(0, len(content), self._half_bytes):
            piece = content[start : start + self._half_bytes]
            if self._size + len(piece) > self._half_bytes:
                self._rotate()
            self._size += os.write(self._descriptor, piece)

    def _rotate(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # moved already, by a turn that could not open the next file
            self._path.replace(self._path.with_name(self._path.name + ".old"))
        # Opened before the old one is closed: a number that we closed may be somebody else's file the next time.
        descriptor, size = _open(self._path)
        os.close(self._descriptor)
        self._descriptor, self._size = descriptor, size

    def tail(self, limit_bytes: int) -> str:
        """Return the end of the console, as text of at most `limit_bytes` in UTF-8."""
        return self._tail.encode()[-limit_bytes:].decode(errors="ignore") if limit_bytes > 0 else ""

    def close(self) -> None:
        """Close the file; the tail stays readable. Can be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def make_printable(text: str) -> str:
    """Return `text` without carriage returns, and with every other control or format character spelt out."""
    return _SUSPECT.sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\r":
        return ""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _open(path: Path) -> tuple[int, int]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    return descriptor, os.fstat(descriptor).st_size


def _read_end(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_CHARACTERS))
        return file.read().decode(errors="replace")
    return ""
