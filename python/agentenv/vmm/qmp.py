"""QEMU's control protocol: a typed client over a Unix socket. Owns the connection, knows no machine.

The monitor may have been taken over by its guest, so lines, nesting and waiting are bounded.
"""

import asyncio
import contextlib
import itertools
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import log
from agentenv.vmm.errors import CommandRefused, MonitorLost

_log = log.get("vmm")
_LINE_LIMIT_BYTES = 256 * 1024
_PEER_CREDENTIALS = struct.Struct("iII")

JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class QmpEvent:
    """Something that happened in the monitor: `SHUTDOWN` with its reason, for one."""

    name: str
    facts: JsonObject


def peer_pid(connection: socket.socket) -> int:
    """Return the number of the process at the other end of a Unix socket (for a listener: of who listens)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid: int = _PEER_CREDENTIALS.unpack(raw)[0]
    return pid


class QmpClient:
    """One control connection.

    `listen` must run for as long as the connection is used; it returns when the connection has ended, and every
    command, running or later, raises `MonitorLost` then.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_seconds: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout_seconds = timeout_seconds
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}
        self._lost: str | None = None

    @classmethod
    async def connect(cls, path: Path, *, pid: int, timeout_seconds: float) -> "QmpClient":
        """Connect to the monitor `pid` and agree on the protocol.

        Raises `OSError` when nobody listens, `MonitorLost` when who does is not that monitor or does not speak QMP.
        """
        reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_LIMIT_BYTES)
        client = cls(reader, writer, timeout_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                await client._agree(pid)
        except TimeoutError as error:
            await client.close()
            raise MonitorLost(f"monitor {pid} did not greet within {timeout_seconds:g} s") from error
        except BaseException:
            await client.close()
            raise
        return client

    async def _agree(self, pid: int) -> None:
        if peer_pid(self._writer.get_extra_info("socket")) != pid:
            raise MonitorLost(f"the control socket is served by another process than monitor {pid}")
        if "QMP" not in await self._read():
            raise MonitorLost("the monitor's greeting is not QMP")
        self._writer.write(b'{"execute": "qmp_capabilities"}\n')
        while "return" not in (reply := await self._read()):
            if "error" in reply:
                raise MonitorLost(f"the monitor refused to speak QMP: {_describe(reply['error'])}")

    async def listen(self, on_event: Callable[[QmpEvent], None]) -> None:
        """Take in answers, and hand on events, until the connection ends; its end is not an error here."""
        reason = "the monitor's connection was closed"
        try:
            while True:
                self._take(await self._read(), on_event)
        except MonitorLost as error:
            reason = error.message
        finally:
            self._lose(reason)

    async def execute(self, command: str, arguments: JsonObject | None = None) -> object:
        """Run a command and return what it returns.

        Raises `CommandRefused` when the monitor says no, `MonitorLost` when it says nothing in time or has gone.
        """
        if self._lost is not None:
            raise MonitorLost(f"{command} was not sent: {self._lost}")
        number = next(self._numbers)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        request: JsonObject = {"execute": command, "arguments": arguments or {}, "id": number}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                self._writer.write(json.dumps(request).encode() + b"\n")
                await self._writer.drain()
                reply = await answer
        except TimeoutError as error:
            raise MonitorLost(f"the monitor did not answer {command} within {self._timeout_seconds:g} s") from error
        except OSError as error:
            raise MonitorLost(f"{command} could not be sent to the monitor: {error.strerror}") from error
        finally:
            del self._waiting[number]
        if "error" in reply:
            raise CommandRefused(f"the monitor refused {command}: {_describe(reply['error'])}")
        return reply["return"]

    async def close(self) -> None:
        """End the connection; can be called again."""
        self._lose("we closed the connection")
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> JsonObject:
        # Lines that wait already are had without waiting: a monitor that floods us must not hold up everybody else.
        await asyncio.sleep(0)
        try:
            line = await self._reader.readline()
        except OSError as error:
            raise MonitorLost(f"the monitor's connection broke: {error.strerror}") from error
        except ValueError as error:
            raise MonitorLost(f"the monitor sent a line of more than {_LINE_LIMIT_BYTES} bytes") from error
        if not line.endswith(b"\n"):
            raise MonitorLost("the monitor's connection ended")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise MonitorLost("the monitor sent something that is not JSON") from error
        if not isinstance(message, dict):
            raise MonitorLost("the monitor sent something that is not an object")
        return message

    def _take(self, message: JsonObject, on_event: Callable[[QmpEvent], None]) -> None:
        name, facts = message.get("event"), message.get("data", {})
        if isinstance(name, str) and isinstance(facts, dict):
            on_event(QmpEvent(name, facts))
            return
        number = message.get("id")
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is None or answer.done() or not ("return" in message or "error" in message):
            # An answer that came after we gave up on it, or one to nothing that we asked.
            _log.debug("qmp_message_ignored", keys=sorted(message)[:8])
            return
        answer.set_result(message)

    def _lose(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(MonitorLost(self._lost))


def _describe(error: object) -> str:
    text = error.get("desc") if isinstance(error, dict) else None
    return str(text)[:500]
