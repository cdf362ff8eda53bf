"""Commands and files in a guest through the daemon's own protocol, over connections that stay open."""

import base64
import json
import struct
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import aiohttp

_END_OF_STREAM = 2
# Short output is kept whole.
_KEPT_BYTES = 16 << 10


class Envd:
    """Runs commands at one base URL: the API port with routing headers, or the guest itself."""

    def __init__(self, base_url: str, token: str | None, headers: dict[str, str] | None = None) -> None:
        self._url = f"{base_url}/process.Process/Start"
        self._files_url = f"{base_url}/files"
        self._headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        self._headers |= headers or {}
        if token is not None:
            self._headers["X-Access-Token"] = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(auto_decompress=False, connector=connector, read_bufsize=1 << 20)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def run(self, program: str, *arguments: str) -> None:
        """Run a program to its end. Raises when it did not end with 0."""
        await self._run(program, *arguments)

    async def output(self, program: str, *arguments: str) -> str:
        """Run a program to its end, and return what it wrote."""
        messages = await self._run(program, *arguments)
        pieces = [one["event"]["data"].get("stdout", "") for one in messages if "data" in one.get("event", {})]
        return b"".join(map(base64.b64decode, pieces)).decode()

    async def download(self, path: str) -> float:
        """Return the seconds in which a file has come."""
        assert self._session is not None
        begin = time.perf_counter()
        parameters = {"path": path, "username": "root"}
        headers = self._headers | {"Accept-Encoding": "identity"}
        async with self._session.get(self._files_url, params=parameters, headers=headers) as answer:
            answer.raise_for_status()
            async for _ in answer.content.iter_any():
                pass
        return time.perf_counter() - begin

    async def upload(self, path: str, size_bytes: int) -> float:
        """Return the seconds in which a file of zeros has been stored."""
        assert self._session is not None
        begin = time.perf_counter()
        parameters = {"path": path, "username": "root"}
        headers = self._headers | {"Content-Type": "application/octet-stream"}
        body = _zeros(size_bytes)
        async with self._session.post(self._files_url, params=parameters, headers=headers, data=body) as answer:
            answer.raise_for_status()
            await answer.read()
        return time.perf_counter() - begin

    async def _run(self, program: str, *arguments: str) -> list[dict[str, Any]]:
        """Return the messages of the stream; of a long one, those at its end."""
        assert self._session is not None
        message = json.dumps({"process": {"cmd": program, "args": arguments}, "stdin": False}).encode()
        body = struct.pack(">BI", 0, len(message)) + message
        content = bytearray()
        async with self._session.post(self._url, data=body, headers=self._headers) as answer:
            async for piece in answer.content.iter_any():
                content += piece
                _skip_frames(content)
        return _check(answer.status, bytes(content))


async def _zeros(size_bytes: int) -> AsyncIterator[bytes]:
    piece = bytes(1 << 20)
    for _ in range(size_bytes // len(piece)):
        yield piece


def _skip_frames(content: bytearray) -> None:
    """Forget all whole frames but the last, so that reading much costs little."""
    position = 0
    while len(content) - position > _KEPT_BYTES:
        (length,) = struct.unpack_from(">xI", content, position)
        if position + 5 + length > len(content):
            break
        position += 5 + length
    del content[:position]


def _check(status: int, content: bytes) -> list[dict[str, Any]]:
    exit_code: int | None = None
    messages = []
    while content:
        flags, length = struct.unpack_from(">BI", content)
        message = json.loads(content[5 : 5 + length])
        content = content[5 + length :]
        messages.append(message)
        if flags & _END_OF_STREAM and message.get("error"):
            raise RuntimeError(f"the command failed: {message['error']}")
        if end := message.get("event", {}).get("end"):
            exit_code = end.get("exitCode", 0)
    if status != 200 or exit_code != 0:
        raise RuntimeError(f"the command ended with {exit_code} (HTTP {status})")
    return messages
