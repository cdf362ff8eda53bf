"""A server of the contract on a real socket: control plane in memory, processes played by the test."""

import asyncio
import base64
import contextlib
import json
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

API_KEY = "fake-key"
TOKEN = "fake-token"
PID = 4711
_STREAM_TYPE = "application/connect+json"


@dataclass(frozen=True)
class SeenRequest:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class FakeProcess:
    """What clients sent to the one process; None in `inputs` is the end of input."""

    inputs: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    signals: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    group_signals: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    sizes: asyncio.Queue[tuple[int, int]] = field(default_factory=asyncio.Queue)


class Call:
    """One open stream, on which a scenario writes what a daemon would."""

    def __init__(self, request: web.Request, message: Any) -> None:
        self._request = request
        self.message = message
        self.headers = request.headers
        self.response = web.StreamResponse(headers={"Content-Type": _STREAM_TYPE})

    async def open(self, content_type: str = _STREAM_TYPE) -> None:
        self.response.headers["Content-Type"] = content_type
        await self.response.prepare(self._request)

    async def raw(self, content: bytes) -> None:
        await self.response.write(content)

    async def send(self, message: object, flags: int = 0) -> None:
        payload = json.dumps(message).encode()
        await self.raw(struct.pack(">BI", flags, len(payload)) + payload)

    async def start(self, pid: int = PID) -> None:
        await self.send({"event": {"start": {"pid": pid}}})

    async def output(self, channel: str, content: bytes) -> None:
        await self.send({"event": {"data": {channel: base64.b64encode(content).decode()}}})

    async def end(self, exit_code: int = 0, status: str | None = None) -> None:
        shown = status or f"exit status {exit_code}"
        await self.send({"event": {"end": {"exitCode": exit_code, "exited": status is None, "status": shown}}})
        await self.send({}, flags=2)

    async def fail(self, code: str, message: str) -> None:
        await self.send({"error": {"code": code, "message": message}}, flags=2)

    def drop(self) -> None:
        """Cut the connection as a crash would."""
        assert self._request.transport is not None
        self._request.transport.abort()


Scenario = Callable[[Call], Awaitable[None]]


async def echo_and_end(call: Call) -> None:
    """The scenario of a command that writes its own arguments and ends well."""
    await call.start()
    await call.output("stdout", json.dumps(call.message["process"]["args"]).encode())
    await call.end()


class FakeServer:
    """The server. `answers` holds responses that are given before anything else, per `METHOD /path`."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[SeenRequest] = []
        self._arrivals: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.sandboxes: dict[str, dict[str, Any]] = {}
        self.answers: defaultdict[str, deque[tuple[int, bytes, dict[str, str]]]] = defaultdict(deque)
        self.snapshots: list[dict[str, Any]] = []
        self.process = FakeProcess()
        self.on_start: Scenario = echo_and_end
        self.on_connect: Scenario = echo_and_end
        self.group_signals_work = True

    def answer(self, route: str, status: int, body: object, **headers: str) -> None:
        """Give this answer to the next request for `route`; `_` in header names stands for `-`."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[route].append(
            (status, content, {name.replace("_", "-"): value for name, value in headers.items()})
        )

    def add_sandbox(self, sandbox_id: str, **fields: Any) -> dict[str, Any]:
        """Let a sandbox exist."""
        self.sandboxes[sandbox_id] = {
            "sandboxID": sandbox_id,
            "templateID": "t-base",
            "alias": "base",
            "clientID": "",
            "startedAt": "2026-11-01T10:00:00Z",
            "endAt": "2026-11-01T10:05:00.5Z",
            "cpuCount": 2,
            "memoryMB": 512,
            "diskSizeMB": 2048,
            "state": "running",
            "envdVersion": "0.6.13",
            "metadata": {},
            "somethingNew": [1],
            **fields,
        }
        return self.sandboxes[sandbox_id]

    def seen(self, route: str) -> list[SeenRequest]:
        """Return the requests for `METHOD /path`."""
        return [request for request in self.requests if f"{request.method} {request.path}" == route]

    async def arrival(self, route: str) -> None:
        """Wait until a request for `METHOD /path` has come."""
        await self._arrivals[route].wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeServer"]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(
            SeenRequest(request.method, request.path, dict(request.query), dict(request.headers), body)
        )
        route = f"{request.method} {request.path}"
        self._arrivals[route].set()
        waiting = self.answers[route]
        if waiting:
            status, content, headers = waiting.popleft()
            return web.Response(status=status, body=content, headers=headers)
        if request.path.startswith("/process.Process/"):
            return await self._daemon(request, body)
        if request.headers.get("X-API-KEY") != API_KEY:
            return _error(401, "Invalid API key")
        return self._control(request, body)

    def _control(self, request: web.Request, body: bytes) -> web.Response:
        parts = request.path.strip("/").split("/")
        match request.method, parts:
            case "POST", ["v2", "sandboxes"]:
                return self._create(json.loads(body))
            case "GET", ["v2", "sandboxes"]:
                return self._list(request)
            case "GET", ["sandboxes", sandbox_id] if sandbox_id in self.sandboxes:
                return web.json_response(self.sandboxes[sandbox_id])
            case "DELETE", ["sandboxes", sandbox_id] if sandbox_id in self.sandboxes:
                del self.sandboxes[sandbox_id]
                return web.Response(status=204)
            case "POST", ["v2", "sandboxes", sandbox_id, "connect"] if sandbox_id in self.sandboxes:
                return web.json_response({**self.sandboxes[sandbox_id], "envdAccessToken": TOKEN})
            case "POST", ["sandboxes", sandbox_id, "timeout" | "refreshes"] if sandbox_id in self.sandboxes:
                return web.Response(status=204)
        return self._lifecycle(request, parts, body)

    def _lifecycle(self, request: web.Request, parts: list[str], body: bytes) -> web.Response:
        match request.method, parts:
            case "POST", ["sandboxes", sandbox_id, "pause"] if sandbox_id in self.sandboxes:
                return self._pause(sandbox_id)
            case "POST", ["sandboxes", sandbox_id, "fork"] if sandbox_id in self.sandboxes:
                return self._fork(json.loads(body)["count"])
            case "POST", ["sandboxes", sandbox_id, "rollback"] if sandbox_id in self.sandboxes:
                return web.json_response({**self.sandboxes[sandbox_id], "envdAccessToken": TOKEN})
            case "POST", ["sandboxes", sandbox_id, "snapshots"] if sandbox_id in self.sandboxes:
                return self._snapshot(sandbox_id, json.loads(body))
            case "GET", ["snapshots"]:
                return web.json_response(self.snapshots[::-1])
            case "GET", ["snapshots", _, "tree"]:
                return web.json_response(self.snapshots)
            case "DELETE", ["templates", reference]:
                return self._delete_snapshot(reference)
        return _error(404, f"{request.path} was not found")

    def _create(self, document: Any) -> web.Response:
        if document["templateID"] != "base":
            return _error(404, f"template '{document['templateID']}' not found")
        sandbox = self.add_sandbox(f"i{len(self.sandboxes):019d}", metadata=document["metadata"])
        return web.json_response({**sandbox, "envdAccessToken": TOKEN, "domain": None}, status=201)

    def _pause(self, sandbox_id: str) -> web.Response:
        if self.sandboxes[sandbox_id]["state"] == "paused":
            document = {"code": 409, "message": "it is paused", "error_code": "sandbox_is_paused"}
            return web.json_response(document, status=409)
        self.sandboxes[sandbox_id]["state"] = "paused"
        return web.Response(status=204)

    def _fork(self, count: int) -> web.Response:
        children = [self.add_sandbox(f"ic{number:018d}") for number in range(count)]
        entries: list[Any] = [{"sandbox": {**child, "envdAccessToken": TOKEN}} for child in children]
        if count > 2:
            entries[-1] = {"error": {"code": 429, "message": "this node is full"}}
        return web.json_response(entries, status=201)

    def _snapshot(self, sandbox_id: str, document: Any) -> web.Response:
        parent = self.snapshots[-1]["snapshotID"] if self.snapshots else None
        self.snapshots.append(
            {
                "snapshotID": f"s{len(self.snapshots)}",
                "names": [document["name"]] if "name" in document else [],
                "parentID": parent,
                "sandboxID": sandbox_id,
                "createdAt": "2026-11-01T10:00:00Z",
                "memoryMB": 512,
                "sizeBytes": 2048,
            }
        )
        return web.json_response(self.snapshots[-1], status=201)

    def _delete_snapshot(self, reference: str) -> web.Response:
        kept = [one for one in self.snapshots if one["snapshotID"] != reference]
        was_there = len(kept) < len(self.snapshots)
        self.snapshots = kept
        return web.Response(status=204) if was_there else _error(404, f"snapshot {reference} was not found")

    def _list(self, request: web.Request) -> web.Response:
        states = request.query.get("state")
        found = [box for box in self.sandboxes.values() if states is None or box["state"] in states.split(",")]
        first = int(request.query.get("nextToken", "0"))
        last = first + int(request.query["limit"])
        headers = {"X-Next-Token": str(last)} if last < len(found) else {}
        return web.json_response(found[first:last], headers=headers)

    async def _daemon(self, request: web.Request, body: bytes) -> web.StreamResponse:
        if request.headers.get("E2b-Sandbox-Id") not in self.sandboxes:
            document = {"sandboxId": "x", "message": "The sandbox was not found", "code": 502}
            return web.json_response(document, status=502)
        if request.headers.get("X-Access-Token") != TOKEN:
            return _error(401, "unauthorized access")
        method = request.path.rpartition("/")[2]
        if method in {"Start", "Connect"}:
            return await self._stream(request, method, json.loads(body[5:]))
        return self._unary(method, json.loads(body))

    async def _stream(self, request: web.Request, method: str, message: Any) -> web.StreamResponse:
        call = Call(request, message)
        await call.open()
        line = " ".join(message["process"].get("args", []))
        if line.startswith("-c kill -") and line.endswith(f" -{PID}"):
            self.process.group_signals.put_nowait(line.split()[2].removeprefix("-"))
            await call.start(PID + 1)
            await call.end(0 if self.group_signals_work else 1)
        else:
            with contextlib.suppress(ConnectionError):
                await (self.on_start if method == "Start" else self.on_connect)(call)
        return call.response

    def _unary(self, method: str, document: Any) -> web.Response:
        match method:
            case "SendInput":
                (content,) = document["input"].values()
                self.process.inputs.put_nowait(base64.b64decode(content))
            case "CloseStdin":
                self.process.inputs.put_nowait(None)
            case "SendSignal":
                self.process.signals.put_nowait(document["signal"])
            case "Update":
                size = document["pty"]["size"]
                self.process.sizes.put_nowait((size["cols"], size["rows"]))
        return web.json_response({})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"code": status, "message": message}, status=status)
