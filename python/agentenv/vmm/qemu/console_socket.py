"""The line over which QEMU sends a guest's console to us: we listen, it connects, and connects again to our successor.

Reading slowly is the fence against a guest that floods its console: the socket fills, and the guest waits.
"""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

from agentenv.base import log
from agentenv.base.clock import Clock
from agentenv.vmm.console import ConsoleLog
from agentenv.vmm.qmp import peer_pid

_log = log.get("vmm")
_CHUNK_BYTES = 4096
_BURST_SECONDS = 0.5
_RETRY_SECONDS = 1.0
# More than a Unix socket buffers, so that nothing of an honest guest is lost.
_REST_LIMIT_BYTES = 512 * 1024


class ConsoleSocket:
    """Listens for one monitor and copies what it sends into a `ConsoleLog`."""

    def __init__(self, path: Path, *, owner: int, console: ConsoleLog, bytes_per_second: int, clock: Clock) -> None:
        self._path = path
        self._console = console
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._paid_until = 0.0
        self._connection: socket.socket | None = None
        self._listener = _listen(path, owner)

    async def serve(self, pid: int) -> None:
        """Copy from the monitor `pid`, one connection after the other, until cancelled; others are turned away."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                # Out of descriptors, for one. The guest waits meanwhile; the machine must not suffer more than that.
                _log.warning("console_accept_failed", reason=error.strerror)
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            if self._welcome(connection, pid):
                await self._copy(connection)
                self._hang_up()

    async def _copy(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # broken, or short of something: the monitor connects again
            while chunk := await loop.sock_recv(connection, _CHUNK_BYTES):
                self._console.append(chunk)
                await self._pace(len(chunk))

    async def _pace(self, count: int) -> None:
        now = self._clock.monotonic()
        self._paid_until = max(self._paid_until, now) + count / self._bytes_per_second
        ahead = self._paid_until - now - _BURST_SECONDS
        if ahead > 0:
            await self._clock.sleep(ahead)

    def drain_nowait(self, pid: int) -> None:
        """Take what a monitor that is dead had still sent. `serve` must have been cancelled before."""
        # Nobody waits there, or there is no descriptor for an answer: no last words are worth more than the end itself.
        with contextlib.suppress(OSError):
            while True:
                self._take_rest()
                connection, _ = self._listener.accept()
                self._welcome(connection, pid)

    def _take_rest(self) -> None:
        if self._connection is None:
            return
        left = _REST_LIMIT_BYTES
        with contextlib.suppress(OSError):
            while left > 0 and (chunk := self._connection.recv(_CHUNK_BYTES)):
                self._console.append(chunk)
                left -= len(chunk)
        self._hang_up()

    def _welcome(self, connection: socket.socket, pid: int) -> bool:
        if peer_pid(connection) != pid:
            connection.close()
            return False
        connection.setblocking(False)
        self._connection = connection
        return True

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Stop listening and remove the socket. Can be called again."""
        self._hang_up()
        self._listener.close()
        self._path.unlink(missing_ok=True)


def _listen(path: Path, owner: int) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
        # A umask would be the whole process's; until the mode is set, the directory lets only root and the owner near.
        os.chown(path, owner, owner)
        path.chmod(0o600)
        listener.listen(4)
    except BaseException:
        listener.close()
        raise
    return listener
