"""A block daemon of a test's own: the control protocol over a real socket, with images that are only remembered."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentenv.blocks.blockd import BlockDaemonClient
from agentenv.blocks.places import Places
from agentenv.blocks.store import LayeredStore

Reply = dict[str, Any]


@dataclass
class FakeBlockd:
    """Answers like the daemon. `answers` replaces what a verb answers; `raw` is sent instead of any answer at all."""

    mount: Path
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: dict[str, Callable[[dict[str, Any]], Reply]] = field(default_factory=dict)
    raw: bytes | None = None
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    held: asyncio.Event | None = None
    page_limit: int = 2000

    def cut(self) -> None:
        """End every connection, as the death of the server process does."""
        for writer in self.connections:
            writer.close()
        self.connections.clear()

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        async with asyncio.TaskGroup() as group:
            while (frame := await read_frame(reader)) is not None:
                group.create_task(self._answer(frame, writer))
        writer.close()

    async def _answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        assert request["version"] == 1
        self.calls.append((request["verb"], request["arguments"]))
        if self.held is not None:
            await self.held.wait()
        if self.raw is not None:
            writer.write(self.raw)
            return
        verb = self.answers.get(request["verb"]) or getattr(self, f"_{request['verb']}")
        body = json.dumps({"id": request["id"], **verb(request["arguments"])}).encode()
        if not writer.is_closing():
            writer.write(struct.pack(">I", len(body)) + body)

    def _hello(self, _: dict[str, Any]) -> Reply:
        return {"result": {"version": 1, "program": "9.9", "pid": 1, "mount": str(self.mount), "exporters": ["fuse"]}}

    def _open(self, arguments: dict[str, Any]) -> Reply:
        known = self.images.get(arguments["name"])
        if known is not None and known["arguments"] != arguments:
            return refuse("conflict", "image_differs", "other arguments")
        size = (arguments["writable"] or {}).get("size_bytes") or 4096
        self.images[arguments["name"]] = {"arguments": arguments, "layers": arguments["layers"], "size_bytes": size}
        return {"result": {"path": str(self.mount / arguments["name"]), "size_bytes": size}}

    def _close(self, arguments: dict[str, Any]) -> Reply:
        return {"result": {"was_open": self.images.pop(arguments["name"], None) is not None}}

    def _stat(self, arguments: dict[str, Any]) -> Reply:
        if (image := self.images.get(arguments["name"])) is None:
            return refuse("not_found", "image_not_found", f"there is no image {arguments['name']}")
        return {"result": self._shown(arguments["name"]) | {"layers": image["layers"]}}

    def _list(self, arguments: dict[str, Any]) -> Reply:
        names = sorted(name for name in self.images if name > arguments.get("behind", ""))
        page = names[: self.page_limit]
        following = page[-1] if len(names) > len(page) else None
        return {"result": {"images": [self._shown(name) for name in page], "next": following}}

    def _shown(self, name: str) -> dict[str, Any]:
        shown = {"name": name, "path": str(self.mount / name), "state": "ready"}
        return shown | {"size_bytes": self.images[name]["size_bytes"]}

    def _seal(self, arguments: dict[str, Any]) -> Reply:
        image = self.images[arguments["name"]]
        Path(arguments["sealed_path"]).write_bytes(b"sealed " + arguments["seal_id"].encode())
        image["layers"] = [*image["layers"], {"kind": "file", "path": arguments["sealed_path"]}]
        return {"result": {"frozen_microseconds": 250}}

    def _sealed(self, arguments: dict[str, Any]) -> Reply:
        paths = [Path(layer["path"]) for layer in self.images[arguments["name"]]["layers"] if layer["kind"] == "file"]
        path = next(path for path in paths if path.name == f"{arguments['seal_id']}.layer")
        digest = "sha256:" + arguments["seal_id"].encode().hex().ljust(64, "0")
        return {"result": {"path": str(path), "size_bytes": path.stat().st_size, "digest": digest}}

    def _shutdown(self, _: dict[str, Any]) -> Reply:
        return refuse("conflict", "images_open", "images are open") if self.images else {"result": {}}


def refuse(kind: str, code: str, message: str) -> Reply:
    """Return an error as the daemon sends it."""
    return {"error": {"kind": kind, "code": code, "message": message}}


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next request, or None at the end."""
    try:
        (length,) = struct.unpack(">I", await reader.readexactly(4))
        request: dict[str, Any] = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return request


@asynccontextmanager
async def fake_blockd(control: Path, mount: Path) -> AsyncIterator[FakeBlockd]:
    """Serve one on `control` until the block ends."""
    daemon = FakeBlockd(mount)
    server = await asyncio.start_unix_server(daemon.serve, control)
    try:
        yield daemon
    finally:
        server.close()
        daemon.cut()
        await server.wait_closed()


@dataclass
class Bench:
    """Everything between a caller and the fake."""

    daemon: FakeBlockd
    client: BlockDaemonClient
    store: LayeredStore
    places: Places
