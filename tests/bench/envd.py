"""One command in a guest through the daemon's own protocol, over a connection that stays open."""

import json
import struct
from types import TracebackType
from typing import Self

import aiohttp

_END_OF_STREAM = 2


class Envd:
    """Runs commands at one base URL: the API port with routing headers, or the guest itself."""

    def __init__(self, base_url: str, token: str | None, headers: dict[str, str] | None = None) -> None:
        self._url = f"{base_url}/process.Process/Start"
        self._headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        self._headers |= headers or {}
        if token is not None:
            self._headers["X-Access-Token"] = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def run(self, program: str, *arguments: str) -> None:
        """Run a program to its end. Raises when it did not end with 0."""
        assert self._session is not None
        message = json.dumps({"process": {"cmd": program, "args": arguments}, "stdin": False}).encode()
        body = struct.pack(">BI", 0, len(message)) + message
        async with self._session.post(self._url, data=body, headers=self._headers) as answer:
            content = await answer.read()
        _check(answer.status, content)


def _check(status: int, content: bytes) -> None:
    exit_code: int | None = None
    while content:
        flags, length = struct.unpack_from(">BI", content)
        message = json.loads(content[5 : 5 + length])
        content = content[5 + length :]
        if flags & _END_OF_STREAM and message.get("error"):
            raise RuntimeError(f"the command failed: {message['error']}")
        if end := message.get("event", {}).get("end"):
            exit_code = end.get("exitCode", 0)
    if status != 200 or exit_code != 0:
        raise RuntimeError(f"the command ended with {exit_code} (HTTP {status})")
