"""Upgraded connections: raw bytes both ways, ends and half-ends included."""

import asyncio
import contextlib

import pytest

from support.doors import Door
from support.wire import Peer, ScriptedGuest, header

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %b\r\nX-Extra: 1\r\n\r\n"


def upgrade(door: Door, port: int, protocol: bytes) -> bytes:
    sandbox = next(iter(door.orchestrator.sandboxes.values()))
    wanted = b"Connection: keep-alive, Upgrade\r\nUpgrade: " + protocol + b"\r\nSec-WebSocket-Key: k\r\n\r\n"
    return b"GET /socket HTTP/1.1\r\n" + door.routing(sandbox, port) + wanted


@pytest.mark.parametrize("protocol", [b"websocket", b"anything/1"])
async def test_bytes_pass_both_ways_after_an_upgrade(protocol: bytes) -> None:
    async def script(peer: Peer) -> None:
        head = await peer.read_head()
        assert header(head, b"upgrade") == protocol
        assert header(head, b"sec-websocket-key") == b"k"
        await peer.send(SWITCH % protocol + b"early")
        assert await peer.read(5) == b"\x00ping"
        await peer.send(b"\xffpong")
        assert await peer.read_to_end() == b""

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(upgrade(door, guest.port, protocol))
        assert await client.read_head() == SWITCH % protocol
        assert await client.read(5) == b"early"
        await client.send(b"\x00ping")
        assert await client.read(5) == b"\xffpong"
        client.half_close()
        assert await client.read_to_end() == b""


async def test_what_the_client_sends_behind_its_request_is_delivered() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCH % b"websocket")
        assert await peer.read(6) == b"eager!"

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(upgrade(door, guest.port, b"websocket") + b"eager!")
        await client.read_head()
        assert await client.read_to_end() == b""


async def test_a_half_close_of_one_side_leaves_the_other_direction_open() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCH % b"raw")
        everything = await peer.read_to_end()
        await peer.send(everything.upper())

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(upgrade(door, guest.port, b"raw"))
        await client.read_head()
        await client.send(b"all of it")
        client.half_close()
        assert await client.read_to_end() == b"ALL OF IT"


async def test_the_guest_may_half_close_first() -> None:
    rest = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCH % b"raw" + b"bye")
        peer.half_close()
        rest.set_result(await peer.read_to_end())

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(upgrade(door, guest.port, b"raw"))
        await client.read_head()
        assert await client.read_to_end() == b"bye"
        await client.send(b"last words")
        client.half_close()
        assert await rest == b"last words"


async def test_a_reset_on_one_side_resets_the_other() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCH % b"raw")
        await peer.read(1)
        peer.reset()

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(upgrade(door, guest.port, b"raw"))
        await client.read_head()
        await client.send(b"x")
        with pytest.raises(ConnectionError):
            await client.read_to_end()


async def test_cutting_the_sandbox_ends_a_tunnel() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCH % b"websocket")
        await peer.read_to_end()

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        sandbox = door.orchestrator.add()
        await client.send(upgrade(door, guest.port, b"websocket"))
        await client.read_head()
        door.carrier.cut(sandbox.id)
        with contextlib.suppress(ConnectionError):
            assert await client.read_to_end() == b""


async def test_a_declined_upgrade_is_an_ordinary_answer_and_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 426 No\r\nContent-Length: 2\r\n\r\nno")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        smuggled = upgrade(door, guest.port, b"websocket")
        await client.send(upgrade(door, guest.port, b"websocket") + smuggled)
        answer = await client.read_to_end()
        assert answer.startswith(b"HTTP/1.1 426 No\r\n")
        assert answer.count(b"HTTP/1.1") == 1
        assert guest.connections == 1


async def test_a_switch_that_nobody_asked_for_is_a_502() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCH % b"websocket")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        sandbox = door.orchestrator.add()
        await client.send(b"GET / HTTP/1.1\r\n" + door.routing(sandbox, guest.port) + b"\r\n")
        head, _ = await client.read_answer()
    assert head.startswith(b"HTTP/1.1 502 ")


async def test_a_tunnel_holds_back_a_side_that_writes_faster_than_the_other_reads() -> None:
    size = 64 * 2**20
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.read_head()
        await peer.send(SWITCH % b"raw")
        for _ in range(size // 65536):
            await peer.send(bytes(65536))
            sent += 65536

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(upgrade(door, guest.port, b"raw"))
        await client.read_head()
        before = -1
        while before != sent:
            before = sent
            for _ in range(200):
                await asyncio.sleep(0)
        assert sent < size // 2
        assert len(await client.read_to_end()) == size


async def test_everything_sent_before_a_close_is_delivered_to_a_slow_guest() -> None:
    size = 16 * 2**20
    received = asyncio.get_running_loop().create_future()
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCH % b"raw")
        await closed.wait()
        received.set_result(len(await peer.read_to_end()))

    async with Door() as door, ScriptedGuest(script) as guest:
        door.orchestrator.add()
        client = await door.connect()
        await client.send(upgrade(door, guest.port, b"raw"))
        await client.read_head()
        client.writer.write(bytes(size))
        client.writer.close()
        closed.set()
        assert await received == size
