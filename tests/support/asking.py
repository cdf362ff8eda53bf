"""One request to the control plane of a door, over a socket, and its answer."""

import json
from typing import Any

from support.doors import KEY, Door
from support.wire import header


class Answer:
    """Status, head and parsed body of an answer."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.status = int(head.split(b" ")[1])
        self.head = head
        self.body: Any = json.loads(body) if body else None

    def header(self, name: bytes) -> bytes | None:
        return header(self.head, name)


async def call(
    door: Door, method: str, path: str, body: object = None, *, key: str | None = KEY, extra: bytes = b""
) -> Answer:
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = f"{method} {path} HTTP/1.1\r\nHost: door\r\n" + (f"X-API-KEY: {key}\r\n" if key is not None else "")
    if raw:
        lines += f"Content-Length: {len(raw)}\r\n"
    async with await door.connect() as client:
        await client.send(lines.encode() + extra + b"\r\n" + raw)
        answer = Answer(*await client.read_answer())
    if answer.status >= 400:
        assert answer.body["code"] == answer.status
        assert answer.body["message"]
        assert answer.header(b"content-type") == b"application/json; charset=utf-8"
    return answer
