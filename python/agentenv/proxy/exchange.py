"""One exchange: the request to the guest, its answer back to the client. Knows nothing of sandboxes or tokens."""

import asyncio

from aiohttp import web

from agentenv.base.aio import Supervisor
from agentenv.proxy.answer import AnswerHead, Framing, find_head_end, parse_head, write_head, write_switch
from agentenv.proxy.base import Target
from agentenv.proxy.chunks import LAST_CHUNK, encode_chunk
from agentenv.proxy.errors import GuestAnswerBroken, RequestBodyBroken, RequestRefused, SandboxGone
from agentenv.proxy.headers import RequestFacts, connection_options, find_header, write_request_head
from agentenv.proxy.lanes import Lane
from agentenv.proxy.relay import relay_body
from agentenv.proxy.settings import ProxySettings
from agentenv.proxy.tunnel import run_tunnel
from agentenv.proxy.upstream import UpstreamConnection, reset

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_INTERIM_ANSWERS_LIMIT = 16


class Carried(web.StreamResponse):
    """Tells aiohttp that the answer has been written already, and whether the connection can go on."""

    def __init__(self, status: int, *, keeps_alive: bool) -> None:
        super().__init__(status=status, reason="")
        self._keep_alive = keeps_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write nothing: the head has been sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Write nothing: the body has been sent."""
        assert not data


class Exchange:
    """One request of one client on its way through one lane."""

    def __init__(self, request: web.BaseRequest, target: Target, lane: Lane, settings: ProxySettings) -> None:
        self._request = request
        self._target = target
        self._lane = lane
        self._settings = settings
        self._is_http_1_0 = tuple(request.version) < (1, 1)
        self._is_chunked = _has_chunked_body(request)
        self._has_body = not request.content.at_eof()
        self._upgrade = self._wanted_upgrade()
        self._is_sent = False
        self._body_failure: RequestBodyBroken | None = None
        self._has_answered = False
        self._has_switched = False

    async def run(self, supervisor: Supervisor) -> web.StreamResponse:
        """Carry the exchange to its end."""
        head = self._head()
        body = self._whole_body()
        if body is None:
            return await self._stream_request(head, supervisor)
        connection = self._lane.take_idle(self._target.port)
        if connection is not None:
            try:
                return await self._run_once(connection, head + body)
            except GuestAnswerBroken:
                # The guest may have closed a kept connection just as we used it; a fresh one tells for sure.
                if self._lane.is_cut or self._has_answered or self._request.method not in _IDEMPOTENT:
                    raise
        return await self._run_once(await self._lane.open(self._target), head + body)

    def _head(self) -> bytes:
        request = self._request
        target = self._target
        host = find_header(request.raw_headers, b"host")
        if target.host_header is not None:
            host = target.host_header.encode()
        return write_request_head(
            RequestFacts(
                method=request.method,
                path=target.path,
                headers=request.raw_headers,
                host=host if host is not None else f"{target.host}:{target.port}".encode(),
                peer=request.remote or "unknown",
                scheme=request.scheme,
                is_chunked=self._is_chunked,
                upgrade=self._upgrade,
                trust_forwarded=self._settings.trust_forwarded_headers,
            )
        )

    def _wanted_upgrade(self) -> bytes | None:
        headers = self._request.raw_headers
        protocol = find_header(headers, b"upgrade")
        # A body and a switch of protocol in one request cannot both be carried; a server may ignore Upgrade.
        if protocol is None or self._has_body or self._is_http_1_0 or b"upgrade" not in connection_options(headers):
            return None
        return protocol

    def _whole_body(self) -> bytes | None:
        """Return the body framed for the guest when all of it is here already, else None."""
        content = self._request.content
        if not self._has_body:
            return LAST_CHUNK if self._is_chunked else b""
        if not content.is_eof() or content.exception() is not None:
            return None
        body = content.read_nowait(-1)
        return encode_chunk(body) + LAST_CHUNK if self._is_chunked and body else body

    async def _run_once(self, connection: UpstreamConnection, message: bytes) -> web.StreamResponse:
        try:
            await connection.send(message)
            self._is_sent = True
            return await self._answer(connection)
        except BaseException:
            if not self._has_switched:
                connection.abort()
            raise

    async def _stream_request(self, head: bytes, supervisor: Supervisor) -> web.StreamResponse:
        connection = self._lane.take_idle(self._target.port) or await self._lane.open(self._target)
        sending = None
        try:
            connection.send_nowait(head)
            sending = supervisor.start("proxy_request_body", self._send_body(connection))
            return await self._answer(connection)
        except BaseException:
            connection.abort()
            raise
        finally:
            if sending is not None:
                sending.cancel()
                # aiohttp reads the rest of the body next, and a stream has one reader at a time.
                await asyncio.wait({sending})

    async def _send_body(self, connection: UpstreamConnection) -> None:
        """Copy the request body to the guest as it comes. A guest that stops reading may still answer."""
        content = self._request.content
        while True:
            try:
                data = await content.readany()
            except (web.RequestPayloadError, ConnectionError) as error:
                self._body_failure = RequestBodyBroken("the request body ended early or is malformed")
                self._body_failure.__cause__ = error
                connection.abort("the client's request body broke off")
                return
            try:
                if data:
                    await connection.send(encode_chunk(data) if self._is_chunked else data)
                elif content.at_eof():
                    if self._is_chunked:
                        await connection.send(LAST_CHUNK)
                    self._is_sent = True
                    return
            except GuestAnswerBroken:
                return

    async def _answer(self, connection: UpstreamConnection) -> web.StreamResponse:
        try:
            head = await self._receive_head(connection)
        except GuestAnswerBroken as error:
            if self._body_failure is not None:
                raise self._body_failure from error
            if self._lane.is_cut:
                raise SandboxGone("The sandbox was not found") from error
            raise
        self._has_answered = True
        if head.status == 101:
            return await self._switch(connection, head)
        return await self._relay(connection, head)

    async def _receive_head(self, connection: UpstreamConnection) -> AnswerHead:
        for _ in range(_INTERIM_ANSWERS_LIMIT):
            head = parse_head(await self._receive_head_bytes(connection), self._request.method)
            if head.status >= 200 or (head.status == 101 and self._upgrade is not None):
                return head
            if head.status == 100 and not self._is_http_1_0 and "Expect" in self._request.headers:
                await self._request.writer.write(_CONTINUE)
            elif head.status == 101:
                break
        raise GuestAnswerBroken("the program in the sandbox sent an interim answer that nobody asked for")

    async def _receive_head_bytes(self, connection: UpstreamConnection) -> bytes:
        received = b""
        while True:
            piece = await connection.receive()
            if not piece:
                raise GuestAnswerBroken("the program in the sandbox closed the connection without an answer")
            start = max(0, len(received) - 3)
            received += piece
            body_start = find_head_end(received, start)
            if body_start >= 0:
                connection.unread(received[body_start:])
                return received[:body_start]
            if len(received) > self._settings.head_limit_bytes:
                raise GuestAnswerBroken("the program in the sandbox sent headers that are too long")

    async def _switch(self, connection: UpstreamConnection, head: AnswerHead) -> web.StreamResponse:
        await self._request.writer.write(write_switch(head))
        # From here on the tunnel decides how the connection ends: what was received may still have to be delivered.
        self._has_switched = True
        await run_tunnel(self._request, connection)
        return Carried(101, keeps_alive=False)

    async def _relay(self, connection: UpstreamConnection, head: AnswerHead) -> web.StreamResponse:
        ends_by_close = head.framing in {Framing.CHUNKED, Framing.CLOSE} and self._is_http_1_0
        keeps_alive = self._request.keep_alive and not ends_by_close and self._upgrade is None
        is_chunked = head.framing in {Framing.CHUNKED, Framing.CLOSE} and not self._is_http_1_0
        await self._request.writer.write(
            write_head(head, is_http_1_0=self._is_http_1_0, keeps_alive=keeps_alive, chunked=is_chunked)
        )
        try:
            await relay_body(connection, head, self._request.writer.write, is_chunked=is_chunked)
        except GuestAnswerBroken:
            connection.abort()
            self._break_client(ends_by_close=ends_by_close)
            return Carried(head.status, keeps_alive=False)
        if not self._is_sent:
            connection.abort()
        elif head.keeps_alive and head.framing is not Framing.CLOSE and self._upgrade is None:
            self._lane.keep(connection, self._target.port)
        else:
            connection.close()
        return Carried(head.status, keeps_alive=keeps_alive)

    def _break_client(self, *, ends_by_close: bool) -> None:
        """Make sure that the client cannot take what it got for the whole answer."""
        transport = self._request.transport
        if transport is None:
            return
        if ends_by_close:
            # Without a length, an orderly close would look complete; only a reset does not.
            reset(transport)
        else:
            transport.close()


def _has_chunked_body(request: web.BaseRequest) -> bool:
    coding = find_header(request.raw_headers, b"transfer-encoding")
    if coding is None:
        return False
    if coding.strip().lower() != b"chunked":
        raise RequestRefused("only the transfer coding `chunked` is accepted")
    if find_header(request.raw_headers, b"content-length") is not None:
        raise RequestRefused("a request may not have both Content-Length and Transfer-Encoding")
    return True
