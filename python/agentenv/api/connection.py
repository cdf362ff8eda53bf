"""One client connection: aiohttp's protocol, with our bounds and our error bodies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.settings import ApiSettings
from agentenv.base import log

_log = log.get("api")
# Verbs are logged by the control plane, and the data plane is counted; aiohttp's own lines would hold tokens in URLs.
_NO_ACCESS_LOG = logging.getLogger("agentenv.api.access")
_NO_ACCESS_LOG.disabled = True
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class ClientConnection(web.RequestHandler):
    """Speaks HTTP/1.1 with one client."""

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


class ConnectionFactory(web.Server):
    """Makes a `ClientConnection` for each client that connects."""

    def __init__(self, answer: Answer, settings: ApiSettings) -> None:
        super().__init__(answer, handler_cancellation=True)
        self._settings = settings

    def __call__(self) -> ClientConnection:
        """Return the protocol of a new connection."""
        settings = self._settings
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
