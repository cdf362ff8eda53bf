"""One client connection: aiohttp's protocol, with our bounds and our error bodies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.settings import ApiSettings
from agentenv.base import log

_log = log.get("api")
# Verbs are logged by the control plane, and the data plane is counted; aiohttp's own lines would hold tokens in URLs.
_NO_ACCESS_LOG = logging.getLogger("agentenv.api.access")
_NO_ACCESS_LOG.disabled = True
_TOO_MANY_BODY = b'{"code":503,"message":"too many connections to this server; close some and try again"}'
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\nServer: agentenv\r\n"
    b"Retry-After: 1\r\nShould-Retry: true\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
) % (len(_TOO_MANY_BODY), _TOO_MANY_BODY)
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class ClientConnection(web.RequestHandler):
    """Speaks HTTP/1.1 with one client."""

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        super().data_received(data)
        if self._current_request is not None:
            self.break_malformed_body(self._current_request)

    def break_malformed_body(self, request: web.BaseRequest) -> None:
        """Wake whoever reads a body that turned out to be malformed.

        aiohttp queues its 400 as the next message and leaves the body without an end. A next message before the end
        of the body can be nothing else.
        """
        if self._messages and not request.content.is_eof() and request.content.exception() is None:
            request.content.set_exception(web.RequestPayloadError("the request body is malformed"))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp could not parse, or what got past the front door."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionResetError("half an answer is out; the connection has to break")
        if status >= 500:
            _log.error("request_failed", status=status, exc_info=exc)
            text = "internal error"
        else:
            text = "the request is not valid HTTP/1.1, or its head is too large"
        answer = json_answer({"code": status, "message": text}, status=status)
        answer.force_close()
        return answer


class RefusedConnection(asyncio.Protocol):
    """Tells a client that there are too many, and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        open_transport = cast("asyncio.Transport", transport)
        open_transport.write(_TOO_MANY)
        open_transport.close()


class ConnectionFactory(web.Server):
    """Makes a `ClientConnection` for each client that connects."""

    def __init__(self, answer: Answer, settings: ApiSettings) -> None:
        super().__init__(self._handle, handler_cancellation=True)
        self._answer = answer
        self._settings = settings
        self._count = 0

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("ClientConnection", request.protocol)
        connection.break_malformed_body(request)
        response = await self._answer(request)
        if request.content.exception() is not None:
            # What follows cannot be told from the rest of the body: this was the last answer.
            request.content.feed_eof()
            response.force_close()
        return response

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called by aiohttp."""
        self._count += 1
        super().connection_made(handler, transport)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Called by aiohttp."""
        self._count -= 1
        super().connection_lost(handler, exc)

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a new connection."""
        settings = self._settings
        if self._count >= settings.connection_limit:
            # aiohttp's signature promises its own protocol; asyncio, which calls this, takes any.
            return cast("web.RequestHandler", RefusedConnection())
        return ClientConnection(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=settings.idle_connection_seconds,
            access_log=_NO_ACCESS_LOG,
            max_line_size=settings.head_line_limit_bytes,
            max_field_size=settings.head_line_limit_bytes,
            max_headers=settings.header_count_limit,
            auto_decompress=False,
        )
