"""An upgraded connection: raw bytes both ways between a client and a guest, until both have closed."""

import asyncio
from typing import cast

from aiohttp import web
from aiohttp.http import WebSocketReader

from agentenv.proxy.upstream import UpstreamConnection, reset


class _End(asyncio.Protocol):
    """One side of a tunnel: what it receives, the other side writes; when the other cannot write, it does not read.

    The protocol that it replaces on its transport still learns of the end.
    """

    def __init__(
        self, transport: asyncio.Transport, replaced: asyncio.BaseProtocol, over: "asyncio.Future[None]"
    ) -> None:
        self.transport = transport
        self.has_ended = False
        self.is_lost = False
        self._replaced = replaced
        self._over = over
        self._other: _End | None = None

    def join(self, other: "_End") -> None:
        self._other = other

    @property
    def other(self) -> "_End":
        assert self._other is not None
        return self._other

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        self.has_ended = True
        if self.other.has_ended:
            # Both said their last word; closing flushes what is still to be written.
            self.transport.close()
            self.other.transport.close()
        elif not self.other.transport.is_closing():
            self.other.transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if exc is None:
            self.other.transport.close()
        else:
            reset(self.other.transport)
        if not self._over.done():
            self._over.set_result(None)
        self._replaced.connection_lost(exc)


class _Tail:
    """Collects what the client sent right behind its upgrade request, in the shape aiohttp gives it to a parser."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        pass


async def run_tunnel(request: web.BaseRequest, upstream: UpstreamConnection) -> None:
    """Join client and guest, whose 101 has been sent, and return when the connection is over.

    Bytes that either side sent early are delivered first. Cancelling ends both sides at once.
    """
    client_transport = request.transport
    if client_transport is None or request.protocol is None:
        upstream.abort()
        return
    tail = _Tail()
    request.protocol.set_parser(cast("WebSocketReader", tail))
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    client = _End(client_transport, request.protocol, over)
    guest = _End(upstream.transport, upstream, over)
    client.join(guest)
    guest.join(client)
    for piece in upstream.take_pieces():
        client_transport.write(piece)
    if guest.transport.is_closing():
        client_transport.close()
        return
    if tail.data:
        guest.transport.write(tail.data)
    guest.transport.set_protocol(guest)
    client_transport.set_protocol(client)
    if upstream.has_ended:
        guest.eof_received()
    try:
        await over
    finally:
        # Once one side is lost, the other is being flushed and closed; anything else that ends us breaks both.
        if not client.is_lost and not guest.is_lost:
            reset(client_transport)
            reset(guest.transport)
