"""Our side of the preload library (crates/aenv-preload): frozen copies of a monitor, and writes that are tracked.

The monitor may have been taken over by its guest: whoever answers, and whatever process it names, is checked.
"""

import asyncio
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.process import ProcessIdentity, identify, reap
from agentenv.vmm.errors import CaptureFailed
from agentenv.vmm.memory import GuestMemory
from agentenv.vmm.qemu.command_line import PRELOAD_SOCKET
from agentenv.vmm.qemu.processes import read_owner
from agentenv.vmm.qmp import peer_pid

_REQUEST = struct.Struct("=QQQ")
_REPLY = struct.Struct("=ii")
_FREEZE = 1
_TRACK = 2
_TIMEOUT_SECONDS = 2.0
# Whoever runs out of memory loses the copy, and with it a capture, before any machine.
_EXPENDABLE = "1000"


@dataclass(frozen=True, slots=True)
class FrozenCopy:
    """A copy of a monitor that stands still. It ends with the connection, so also when we die."""

    process: ProcessIdentity
    connection: socket.socket

    async def end(self) -> None:
        """Let it go, and wait until it is gone. Can be called again."""
        self.connection.close()
        self.process.kill()
        await self.process.wait_ended()
        reap(self.process.pid)


class Preload:
    """Asks the library in one monitor, which runs as user `owner`."""

    def __init__(self, directory: Path, process: ProcessIdentity, owner: int) -> None:
        self._path = directory / PRELOAD_SOCKET
        self._process = process
        self._owner = owner

    async def track(self, memory: GuestMemory) -> None:
        """Have the kernel track writes to the guest's memory. Can be called again. Raises `CaptureFailed`."""
        with self._connect() as connection:
            await self._ask(connection, _TRACK, memory)

    async def freeze(self, memory: GuestMemory) -> FrozenCopy:
        """Return a copy whose memory stays as it is now. Raises `CaptureFailed`."""
        connection = self._connect()
        try:
            pid = await self._ask(connection, _FREEZE, memory)
            return FrozenCopy(self._recognise(pid), connection)
        except BaseException:
            connection.close()  # which ends the copy, if there is one
            raise

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            connection.connect(str(self._path))
            is_ours = peer_pid(connection) == self._process.pid
        except OSError as error:
            connection.close()
            raise CaptureFailed(f"the preload library does not listen: {error.strerror}") from error
        if not is_ours:
            connection.close()
            raise CaptureFailed("the preload library's socket is served by another process than the monitor")
        return connection

    async def _ask(self, connection: socket.socket, verb: int, memory: GuestMemory) -> int:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                connection.send(_REQUEST.pack(verb, memory.address, memory.size_bytes))
                answer = await loop.sock_recv(connection, _REPLY.size)
        except TimeoutError as error:
            raise CaptureFailed(f"the preload library did not answer within {_TIMEOUT_SECONDS:g} s") from error
        except OSError as error:
            raise CaptureFailed(f"the preload library cannot be asked: {error.strerror}") from error
        if len(answer) != _REPLY.size:
            raise CaptureFailed("the preload library gave no answer")
        number, pid = _REPLY.unpack(answer)
        if number != 0:
            raise CaptureFailed(f"the preload library failed: {os.strerror(number)}")
        return int(pid)

    def _recognise(self, pid: int) -> ProcessIdentity:
        """Return who has this number: only a process of the monitor's own user, which no other machine has."""
        identity = identify(pid) if pid > 0 and pid != self._process.pid else None
        if identity is None or read_owner(pid) != self._owner or identify(pid) != identity:
            raise CaptureFailed("the preload library names a process that is no copy of the monitor")
        try:
            Path(f"/proc/{pid}/oom_score_adj").write_text(_EXPENDABLE)
        except OSError as error:
            raise CaptureFailed("the frozen copy of the monitor ended at once") from error
        return identity
