"""HTTP by hand: a client that says exactly these bytes, and a guest that answers exactly those."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

PATIENCE_SECONDS = 20


class Peer:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Peer":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self) -> bytes:
        """Return everything up to the empty line."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def read(self, count: int) -> bytes:
        """Return exactly so many bytes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.readexactly(count)

    async def read_to_end(self) -> bytes:
        """Return everything until the other side closes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.read()

    async def read_answer(self) -> tuple[bytes, bytes]:
        """Return head and body of an answer with a Content-Length."""
        head = await self.read_head()
        return head, await self.read(int(header(head, b"content-length") or b"0"))

    def half_close(self) -> None:
        self.writer.write_eof()

    def reset(self) -> None:
        """End the connection with a RST."""
        linger_not_at_all = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not_at_all)
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()


def header(head: bytes, name: bytes) -> bytes | None:
    """Return the first value of a header in a head, or None."""
    values = headers(head, name)
    return values[0] if values else None


def headers(head: bytes, name: bytes) -> list[bytes]:
    """Return all values of a header in a head."""
    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    return [value.strip() for key, _, value in lines if key.lower() == name.lower()]


class ScriptedGuest:
    """A server on loopback that runs `script` for each connection; its failures end up in `failures`."""

    def __init__(self, script: Callable[[Peer], Awaitable[None]]) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()
        self.failures: list[BaseException] = []
        self.connections = 0
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        peer = Peer(reader, writer)
        try:
            await self._script(peer)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the proxy hung up, which is for the test to judge
        except BaseException as error:
            self.failures.append(error)
        finally:
            self._running.discard(task)
            await peer.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if error is None:
            assert not self.failures, self.failures
