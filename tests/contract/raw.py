"""HTTP without any client's manners: what the official clients hide from who uses them."""

import http.client
import json
import struct
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

DAEMON_PORT = 49983
Headers = dict[str, str]


@dataclass(frozen=True)
class Answer:
    """What came back; header names are in lower case."""

    status: int
    headers: Headers
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def ask(
    base: str, method: str, path: str, *, headers: Headers | None = None, body: bytes | object | None = None
) -> Answer:
    """Send one request. A body that is not bytes is sent as JSON."""
    sent = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    with closing(http.client.HTTPConnection(urlsplit(base).netloc, timeout=60)) as connection:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, names, answer.read())


def routing(sandbox_id: str, port: int = DAEMON_PORT, token: str | None = None) -> Headers:
    """Return the headers that lead to a port of a sandbox."""
    headers = {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": str(port)}
    return headers if token is None else headers | {"X-Access-Token": token}


def envelope(message: object) -> bytes:
    """Return a message as a stream carries it."""
    payload = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(payload)) + payload


def envelopes(body: bytes) -> list[tuple[int, Any]]:
    """Return the flags and the message of every envelope of a whole stream."""
    found = []
    while body:
        flags, length = struct.unpack_from(">BI", body)
        found.append((flags, json.loads(body[5 : 5 + length])))
        body = body[5 + length :]
    return found
