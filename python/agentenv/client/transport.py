"""HTTP as this package needs it: bounded answers, streams that notice silence, foreign exceptions translated."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from agentenv import __version__
from agentenv.client.answers import Answer
from agentenv.client.errors import (
    AnswerInvalid,
    RequestTimedOut,
    ServerUnreachable,
    StreamLost,
)
from agentenv.client.settings import ClientSettings

# A page of a hundred sandboxes with generous metadata stays far below this.
_ANSWER_BYTES_LIMIT = 16 * 1024 * 1024


class Transport:
    """One pool of connections. Use as an async context manager.

    Promises: nothing is redirected or decompressed, so a token goes only where it was sent and a small answer
    cannot become a large one.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": f"aenv/{__version__}", "Accept-Encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Exchange one request for one answer, whatever its status. The caller sets the deadline."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_timeout_seconds)
        with _translated(url, ServerUnreachable):
            async with self._connected().request(
                method, url, headers=headers, params=query, data=body, timeout=timeout, allow_redirects=False
            ) as response:
                return Answer(response.status, response.headers, await _read_bounded(response))

    @contextlib.asynccontextmanager
    async def stream(
        self, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Post `body` and give the response with its content unread. Read it through `read_chunks`."""
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self._settings.connect_timeout_seconds,
            sock_read=self._settings.silence_limit_seconds,
        )
        async with contextlib.AsyncExitStack() as stack:
            with _translated(url, StreamLost):
                response = await stack.enter_async_context(
                    self._connected().post(url, headers=headers, data=body, timeout=timeout, allow_redirects=False)
                )
            # A stream that is left early must take its connection with it: its rest would come as an answer.
            stack.callback(response.close)
            yield response

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the transport is used outside of its context")
        return self._session


async def read_answer(response: aiohttp.ClientResponse) -> Answer:
    """Read an answer that turned out not to be a stream."""
    with _translated(str(response.url), StreamLost):
        return Answer(response.status, response.headers, await _read_bounded(response))


async def read_chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the content of a stream as it comes. Raises `StreamLost` when it breaks."""
    while True:
        with _translated(str(response.url), StreamLost):
            chunk = await response.content.readany()
        if not chunk:
            return
        yield chunk


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > _ANSWER_BYTES_LIMIT:
            raise AnswerInvalid(f"the server's answer is longer than {_ANSWER_BYTES_LIMIT} bytes")
    return bytes(content)


@contextlib.contextmanager
def _translated(url: str, broken: type[ServerUnreachable | StreamLost]) -> Iterator[None]:
    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc}"
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        # The loop words a refused connection in Python's own way; a name that is not found has no errno of the system.
        known = error.errno is not None and error.errno > 0
        reason = os.strerror(error.errno or 0) if known else error.os_error.strerror
        raise ServerUnreachable(f"nothing answers at {server} ({reason}); check the address and the server") from error
    except aiohttp.ConnectionTimeoutError as error:
        raise ServerUnreachable(f"nothing answers at {server} in time; check the address and the server") from error
    except aiohttp.SocketTimeoutError as error:
        raise broken(f"the connection to {server} fell silent") from error
    except (aiohttp.ClientError, OSError) as error:
        # TimeoutError is an OSError too, and ours to pass on when it is the caller's own deadline.
        if isinstance(error, TimeoutError):
            raise
        raise broken(f"the connection to {server} broke") from error


@contextlib.asynccontextmanager
async def deadline(seconds: float | None, subject: str) -> AsyncIterator[None]:
    """Bound what is done inside. Raises `RequestTimedOut`, which names `subject`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RequestTimedOut(f"cannot {subject}: no answer within {seconds:g} s") from error
