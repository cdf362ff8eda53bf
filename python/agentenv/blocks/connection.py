"""One connection to the control socket of the block daemon: many requests in flight, answers in any order."""

import asyncio
import contextlib
import itertools
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from agentenv.blocks import frames
from agentenv.blocks.errors import DaemonBroken, DaemonGone
from agentenv.blocks.frames import Answer, JsonObject

_PEER_CREDENTIALS = struct.Struct("iII")


class ConnectionLost(Exception):
    """The connection ended before the answer came; nobody knows whether the request was obeyed."""


class Connection:
    """One connection. `listen` must run for as long as it is used, and returns when it has ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._lost = asyncio.Event()

    @classmethod
    async def open(cls, path: Path) -> "Connection":
        """Connect. Raises `DaemonGone` when nobody listens, `DaemonBroken` when who listens is neither root nor us."""
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError as error:
            raise DaemonGone(f"the block daemon does not listen on {path}: {error.strerror}") from error
        raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        _, uid, _ = _PEER_CREDENTIALS.unpack(raw)
        if uid not in {0, os.geteuid()}:
            writer.close()
            raise DaemonBroken(f"{path} is served by user id {uid}, which is neither root nor ours")
        return cls(reader, writer)

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost.is_set()

    async def wait_lost(self) -> None:
        """Return when the connection has ended."""
        await self._lost.wait()

    async def request(self, verb: str, arguments: Mapping[str, object]) -> JsonObject:
        """Send a request and return its result. Raises `ConnectionLost`, or the error that the daemon answered."""
        if self.is_lost:
            raise ConnectionLost
        number = next(self._numbers)
        frame = frames.encode_request(number, verb, arguments)
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            self._writer.write(frame)
            await self._writer.drain()
            answer = await waiting
        except OSError as error:
            raise ConnectionLost from error
        finally:
            del self._waiting[number]
        if answer.error is not None:
            raise answer.error
        return answer.result

    async def listen(self) -> None:
        """Take in answers until the connection ends. Raises `DaemonBroken` when it ends over nonsense."""
        try:
            while True:
                head = await self._reader.readexactly(frames.LENGTH_BYTES)
                body = await self._reader.readexactly(frames.decode_length(head))
                self._take(frames.decode_answer(body))
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self._lose()

    async def close(self) -> None:
        """End the connection; can be called again."""
        self._lose()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _take(self, answer: Answer) -> None:
        waiting = self._waiting.get(answer.number)
        # Nobody waits for an answer whose caller gave up in between.
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _lose(self) -> None:
        self._lost.set()
        self._writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost())
