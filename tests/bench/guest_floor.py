"""The floor of the daemon's streams: a program whose output or input is a plain TCP connection to the same guest."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

from bench.envd import Envd
from bench.node import BenchServer

# As large as the smallest bench wants to be sure that starting is not what is measured.
STREAM_BYTES = 256 << 20
_PORT = 7007
# One line names a command; it then becomes the other end of the connection.
_PROGRAM = f"""
import os, socket
door = socket.create_server(("", {_PORT}), backlog=64)
while True:
    connection, _ = door.accept()
    if os.fork() == 0:
        command = b""
        while not command.endswith(b"\\n"):
            command += connection.recv(1)
        for number in (0, 1):
            os.dup2(connection.fileno(), number)
        os.execv("/bin/sh", ["sh", "-c", command.decode()])
    connection.close()
"""
_PIECE = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class Guest:
    """A sandbox, straight and without the server in between."""

    address: str
    envd: Envd

    @classmethod
    @contextlib.asynccontextmanager
    async def created(cls, server: BenchServer) -> AsyncIterator[Self]:
        """Create a sandbox with the floor's program in it, and kill it afterwards."""
        sandbox = await server.create()
        address = str(server.slot_address(sandbox.id))
        async with Envd(f"http://{address}:49983", sandbox.token) as envd:
            floor = asyncio.ensure_future(envd.run("/usr/bin/python3", "-c", _PROGRAM))
            try:
                await _wait_until_open(address)
                yield cls(address, envd)
            finally:
                floor.cancel()
                await asyncio.gather(floor, return_exceptions=True)
                await server.kill(sandbox.id)

    async def receive_plain(self, command: str) -> float:
        """Return the seconds in which the command's output has come over a plain connection."""
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection(self.address, _PORT, limit=1 << 20)
        writer.write(f"{command}\n".encode())
        count = 0
        while piece := await reader.read(1 << 20):
            count += len(piece)
        writer.close()
        if count != STREAM_BYTES:
            raise RuntimeError(f"{count} bytes came")
        return time.perf_counter() - begin

    async def send_plain(self, command: str) -> float:
        """Return the seconds in which the command has taken its input from a plain connection."""
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection(self.address, _PORT)
        writer.write(f"{command}\n".encode())
        for _ in range(STREAM_BYTES // len(_PIECE)):
            writer.write(_PIECE)
            await writer.drain()
        writer.write_eof()
        # The connection is closed when the command has ended; a last piece that nobody read makes it a reset.
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        return time.perf_counter() - begin


def rate(seconds: float) -> float:
    """Return MiB per second."""
    return (STREAM_BYTES >> 20) / seconds


async def _wait_until_open(address: str) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection(address, _PORT)
        except ConnectionError:
            await asyncio.sleep(0.05)
        else:
            writer.write(b"true\n")
            writer.close()
            return
