"""A small internet on this machine: a host, a world beyond it and guests, each a network namespace.

The test process itself moves into the host's namespace, so the machine's own network is never touched.
"""

import asyncio
import ctypes
import os
import socket
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self, TypeVar, cast

from agentenv.base import process
from agentenv.network import namespaces, tap
from agentenv.network.base import GuestIdentity, Slot

PUBLIC_HOST = IPv4Address("198.51.100.1")
GATEWAY = IPv4Address("198.51.100.2")
INTERNET = IPv4Address("203.0.113.7")
RESOLVER = IPv4Address("10.99.0.53")
PRIVATE = IPv4Address("10.99.0.80")
CONTAINER = IPv4Address("172.17.0.2")
METADATA = IPv4Address("169.254.169.254")
CARRIER = IPv4Address("100.64.9.9")
HOME = IPv4Address("192.168.55.5")
WORLD = (INTERNET, RESOLVER, PRIVATE, METADATA, CARRIER, HOME)

_CLONE_NEWNET = 0x40000000
_PATIENCE_SECONDS = 5
_T = TypeVar("_T")


class Lab:
    """The host's namespace (where the test runs) and the world's, which answers at all of `WORLD`."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.world = f"aenvlab{os.getpid()}-world"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, own)
            assert ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) == 0
            stack.callback(namespaces.enter_descriptor, own)
            await ip("link", "set", "lo", "up")
            await ip("netns", "add", self.world)
            stack.push_async_callback(ip, "netns", "del", self.world)
            await self._join()
            self._stack = stack.pop_all()
        return self

    async def _join(self) -> None:
        await ip("link", "add", "wan", "type", "veth", "peer", "name", "eth0", "netns", self.world)
        await ip("addr", "add", f"{PUBLIC_HOST}/24", "dev", "wan")
        await ip("link", "set", "wan", "up")
        for address in (f"{GATEWAY}/24", *(f"{address}/32" for address in WORLD)):
            await ip("-n", self.world, "addr", "add", address, "dev", "eth0")
        await ip("-n", self.world, "link", "set", "lo", "up")
        await ip("-n", self.world, "link", "set", "eth0", "up")
        await ip("route", "add", "default", "via", str(GATEWAY))

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def add_container(self) -> str:
        """Add a namespace behind the host, as a container has it, at `CONTAINER`; return its name."""
        name = f"{self.world}-container"
        await ip("netns", "add", name)
        self._stack.push_async_callback(ip, "netns", "del", name)
        await ip("link", "add", "docker0", "type", "veth", "peer", "name", "eth0", "netns", name)
        await ip("addr", "add", f"{CONTAINER - 1}/24", "dev", "docker0")
        await ip("link", "set", "docker0", "up")
        await ip("-n", name, "addr", "add", f"{CONTAINER}/24", "dev", "eth0")
        await ip("-n", name, "link", "set", "eth0", "up")
        await ip("-n", name, "route", "add", "default", "via", str(CONTAINER - 1))
        return name

    async def serve(self, address: IPv4Address, port: int, *, namespace: str | None = None) -> "Server":
        """Start a TCP and UDP server that answers each message with the name of whom it sees."""
        server = Server()
        await server.open(namespace, address, port)
        self._stack.callback(server.close)
        return server

    async def attach_guest(self, slot: Slot) -> "Guest":
        """Plug a guest of flesh and blood, a namespace with the guest's address, into a slot's tap."""
        guest = Guest(slot)
        await self._stack.enter_async_context(guest)
        return guest


class Server:
    """Answers over TCP and UDP with the address of whom it sees, and remembers them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._server: asyncio.Server | None = None
        self._transport: asyncio.DatagramTransport | None = None

    async def open(self, namespace: str | None, address: IPv4Address, port: int) -> None:
        stream = await socket_in(namespace, socket.SOCK_STREAM)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stream.bind((str(address), port))
        self._server = await asyncio.start_server(self._answer, sock=stream)
        datagrams = await socket_in(namespace, socket.SOCK_DGRAM)
        datagrams.bind((str(address), port))
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self.seen), sock=datagrams)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[0]
        self.seen.append(peer)
        try:
            while line := await reader.readline():
                writer.write(f"{peer} {line.decode()}".encode())
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._transport is not None:
            self._transport.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, peer: tuple[str, int]) -> None:
        self._seen.append(peer[0])
        assert self._transport is not None
        self._transport.sendto(f"{peer[0]} {data.decode()}".encode(), peer)


class Guest:
    """A namespace with the address that every guest has, and a cable from its own tap to the slot's."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._stack = AsyncExitStack()
        self.namespace = f"{slot.namespace}-guest"
        self._to_slot = -1

    async def __aenter__(self) -> Self:
        identity = self._slot.guest
        async with AsyncExitStack() as stack:
            await ip("netns", "add", self.namespace)
            stack.push_async_callback(ip, "netns", "del", self.namespace)
            own = await in_namespace(self.namespace, lambda: stack.enter_context(tap.attached("eth0")))
            slots = await in_namespace(self._slot.namespace, lambda: stack.enter_context(tap.attached(self._slot.tap)))
            self._to_slot = slots
            loop = asyncio.get_running_loop()
            for source, sink in ((own, slots), (slots, own)):
                os.set_blocking(source, False)
                loop.add_reader(source, _forward, source, sink)
                stack.callback(loop.remove_reader, source)
            await ip("-n", self.namespace, "link", "set", "lo", "up")
            await ip("-n", self.namespace, "link", "set", "eth0", "address", identity.mac, "up")
            prefix = identity.network.prefixlen
            await ip("-n", self.namespace, "addr", "add", f"{identity.address}/{prefix}", "dev", "eth0")
            await ip("-n", self.namespace, "route", "add", "default", "via", str(identity.gateway))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.unplug()

    async def unplug(self) -> None:
        """Leave the slot, as a monitor that ended."""
        await self._stack.aclose()

    def inject(self, frame: bytes) -> None:
        """Send a raw Ethernet frame to the slot."""
        os.write(self._to_slot, bytes(10) + frame)


def _forward(source: int, sink: int) -> None:
    try:
        os.write(sink, os.read(source, 70_000))
    except (BlockingIOError, OSError):
        return  # a link that is down or full loses frames, as links do


async def ip(*arguments: str) -> None:
    await process.run(["ip", *arguments])


async def in_namespace(namespace: str | None, work: Callable[[], _T]) -> _T:
    def enter_and_work() -> _T:
        if namespace is not None:
            namespaces.enter(namespace)
        return work()

    return await namespaces.run_in_own_thread("lab", enter_and_work)


async def socket_in(namespace: str | None, kind: socket.SocketKind) -> socket.socket:
    made = await in_namespace(namespace, lambda: socket.socket(socket.AF_INET, kind))
    made.setblocking(False)
    return made


async def ask(
    address: IPv4Address,
    port: int,
    *,
    namespace: str | None = None,
    kind: socket.SocketKind = socket.SOCK_STREAM,
) -> str:
    """Send a line from a namespace and return whom the server saw. Raises `OSError` when refused."""
    loop = asyncio.get_running_loop()
    with await socket_in(namespace, kind) as connection:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await loop.sock_connect(connection, (str(address), port))
            await loop.sock_sendall(connection, b"hello\n")
            answer = await loop.sock_recv(connection, 1000)
    if not answer:
        raise ConnectionResetError
    return answer.decode().split()[0]


async def tracked_connections(namespace: str | None) -> int:
    """Return how many connections the kernel remembers in a namespace."""
    path = Path("/proc/sys/net/netfilter/nf_conntrack_count")
    return int(await in_namespace(namespace, path.read_text))


def datagram_frame(*, source: IPv4Address, destination: IPv4Address, port: int, guest: GuestIdentity) -> bytes:
    """Return an Ethernet frame with a UDP datagram (no checksum) as a guest that lies about `source` sends it."""
    body = b"spoofed\n"
    datagram = struct.pack("!HHHH", 5555, port, 8 + len(body), 0) + body
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(datagram), 1, 0, 64, 17, 0, source.packed, destination.packed
    )
    checksum = sum(struct.unpack("!10H", header))
    while checksum >> 16:
        checksum = (checksum & 0xFFFF) + (checksum >> 16)
    header = header[:10] + struct.pack("!H", ~checksum & 0xFFFF) + header[12:]
    to = bytes.fromhex("02fc00000006")
    return to + bytes.fromhex(guest.mac.replace(":", "")) + b"\x08\x00" + header + datagram
