"""One TCP connection to a guest, as a bounded stream of received pieces. Knows nothing of HTTP."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import cast

from agentenv.proxy.base import Target
from agentenv.proxy.errors import GuestAnswerBroken, GuestSilent, PortClosed

_NO_LINGER = struct.pack("ii", 1, 0)


class UpstreamConnection(asyncio.Protocol):
    """A connection to one port of a guest.

    Invariant: at most one task receives and one sends at a time. Pieces come out as they came in, uncopied;
    reading pauses while more than `limit` bytes wait.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_reading_paused = False
        self._has_ended = False
        self._failure: str | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._is_writing_paused = False
        self._sender: asyncio.Future[None] | None = None
        self.idle_timer: asyncio.TimerHandle | None = None
        self.when_lost: Callable[[UpstreamConnection], None] | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """The transport below; only for handing the connection over to a tunnel."""
        assert self._transport is not None
        return self._transport

    @property
    def has_ended(self) -> bool:
        """Whether the guest will send nothing more."""
        return self._has_ended

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent: the guest has neither closed nor sent what nobody asked for."""
        return not self._has_ended and not self._pieces and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        # The default of 64 KiB would pause after every piece that aiohttp hands over.
        self._transport.set_write_buffer_limits(high=self._limit)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > self._limit and not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()
        self._wake_receiver()

    def eof_received(self) -> bool:
        """Called by asyncio; our own direction stays open, because the guest may still read the request."""
        self._has_ended = True
        self._wake_receiver()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._has_ended = True
        if exc is not None and self._failure is None:
            self._failure = "the program in the sandbox reset the connection"
        self._wake_receiver()
        self._wake_sender()
        if self.when_lost is not None:
            self.when_lost(self)

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._is_writing_paused = False
        self._wake_sender()

    async def receive(self) -> bytes:
        """Return the next piece, b"" after a clean end. Raises `GuestAnswerBroken` after any other end."""
        while not self._pieces:
            if self._failure is not None:
                raise GuestAnswerBroken(self._failure)
            if self._has_ended:
                return b""
            self._receiver = asyncio.get_running_loop().create_future()
            await self._receiver
        piece = self._pieces.popleft()
        self._waiting_bytes -= len(piece)
        if self._is_reading_paused and self._waiting_bytes <= self._limit // 2:
            self._is_reading_paused = False
            if not self._has_ended:
                self.transport.resume_reading()
        return piece

    def unread(self, piece: bytes) -> None:
        """Put back what the last `receive` returned too much."""
        if piece:
            self._pieces.appendleft(piece)
            self._waiting_bytes += len(piece)

    async def send(self, data: bytes) -> None:
        """Send `data`; wait while the guest reads slower than we write. Raises `GuestAnswerBroken`."""
        self.send_nowait(data)
        while self._is_writing_paused and not self.transport.is_closing():
            self._sender = asyncio.get_running_loop().create_future()
            await self._sender

    def send_nowait(self, data: bytes) -> None:
        """Send `data` whatever waits already. Raises `GuestAnswerBroken` when the connection has ended."""
        if self.transport.is_closing():
            raise GuestAnswerBroken(self._failure or "the program in the sandbox closed the connection")
        self.transport.write(data)

    def close(self) -> None:
        """End the connection in order, when everything was said."""
        self.transport.close()

    def abort(self, why: str = "the connection to the sandbox was ended") -> None:
        """End the connection now; a waiting `receive` raises instead of seeing a clean end."""
        if self._failure is None:
            self._failure = why
        if self._transport is not None:
            reset(self._transport)
        self._wake_receiver()
        self._wake_sender()

    def take_pieces(self) -> list[bytes]:
        """Return everything that waits, when the connection is handed over."""
        pieces = list(self._pieces)
        self._pieces.clear()
        self._waiting_bytes = 0
        if self._is_reading_paused:
            self._is_reading_paused = False
            self.transport.resume_reading()
        return pieces

    def _wake_receiver(self) -> None:
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)

    def _wake_sender(self) -> None:
        if self._sender is not None and not self._sender.done():
            self._sender.set_result(None)


def reset(transport: asyncio.Transport) -> None:
    """End a connection so that the other side cannot take it for an orderly end."""
    # Closing sends FIN, even after abort(); only a socket that does not linger sends RST.
    sock = transport.get_extra_info("socket")
    if sock is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


async def connect(target: Target, *, timeout_seconds: float, limit: int) -> UpstreamConnection:
    """Open a connection to a guest's port. Raises `PortClosed` or `GuestSilent`."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_seconds):
            _, connection = await loop.create_connection(
                lambda: UpstreamConnection(limit), str(target.host), target.port
            )
    except TimeoutError as error:
        raise GuestSilent(f"the sandbox did not accept a connection within {timeout_seconds:g} s") from error
    except ConnectionRefusedError as error:
        raise PortClosed("The sandbox is running but port is not open") from error
    except OSError as error:
        raise GuestSilent(f"the sandbox cannot be reached: {error.strerror or 'network error'}") from error
    return connection
