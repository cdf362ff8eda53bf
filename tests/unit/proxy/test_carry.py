"""Exchanges over real sockets on loopback: order is asserted by events, never by time."""

import asyncio

import pytest

from agentenv.proxy.settings import ProxySettings
from support.doors import Door
from support.wire import Peer, ScriptedGuest, header, headers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def answer_always(peer: Peer) -> None:
    while True:
        await peer.read_head()
        await peer.send(OK)


def get(door: Door, port: int, path: bytes = b"/", extra: bytes = b"", method: bytes = b"GET") -> bytes:
    sandbox = next(iter(door.orchestrator.sandboxes.values()))
    return method + b" " + path + b" HTTP/1.1\r\n" + door.routing(sandbox, port) + extra + b"\r\n"


async def test_the_target_and_duplicate_headers_pass_untouched() -> None:
    heads: list[bytes] = []

    async def script(peer: Peer) -> None:
        heads.append(await peer.read_head())
        await peer.send(b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port, b"//a%2F..%2f;x/./b?&q=%20&", b"X-Two: 1\r\nX-Two: 2\r\n"))
        head = await client.read_head()
    assert heads[0].startswith(b"GET //a%2F..%2f;x/./b?&q=%20& HTTP/1.1\r\n")
    assert headers(heads[0], b"x-two") == [b"1", b"2"]
    assert headers(heads[0], b"host") == [b"door"]
    assert headers(head, b"set-cookie") == [b"a", b"b"]


async def test_the_first_byte_of_an_answer_arrives_while_the_guest_still_works() -> None:
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await seen.wait()
        await peer.send(b"1\r\nb\r\n0\r\n\r\n")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port))
        await client.read_head()
        assert await client.read(6) == b"1\r\na\r\n"
        seen.set()
        assert await client.read(11) == b"1\r\nb\r\n0\r\n\r\n"


async def test_a_head_without_a_body_yet_is_passed_on_at_once() -> None:
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n")
        await seen.wait()
        await peer.send(b"x")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port))
        await client.read_head()
        seen.set()
        assert await client.read(1) == b"x"


async def test_a_request_body_streams_while_the_answer_streams() -> None:
    async def script(peer: Peer) -> None:
        head = await peer.read_head()
        assert header(head, b"transfer-encoding") == b"chunked"
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert await peer.read(8) == b"3\r\nabc\r\n"
        await peer.send(b"3\r\nABC\r\n")
        assert await peer.read(7 + 5) == b"2\r\nde\r\n0\r\n\r\n"
        await peer.send(b"2\r\nDE\r\n0\r\n\r\n")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port, b"/", b"Transfer-Encoding: chunked\r\n", b"POST"))
        await client.read_head()
        await client.send(b"3\r\nabc\r\n")
        assert await client.read(8) == b"3\r\nABC\r\n"
        await client.send(b"2\r\nde\r\n0\r\n\r\n")
        assert await client.read(7 + 5) == b"2\r\nDE\r\n0\r\n\r\n"


async def test_a_large_body_of_known_length_arrives_whole() -> None:
    size = 3_000_000
    received = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        head = await peer.read_head()
        assert header(head, b"content-length") == str(size).encode()
        received.set_result(await peer.read(size))
        await peer.send(OK)

    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port, b"/", f"Content-Length: {size}\r\n".encode(), b"PUT"))
        await client.send(body)
        assert await client.read_answer() == (OK[:-2], b"ok")
        assert await received == body


async def test_a_compressed_body_is_not_touched() -> None:
    async def script(peer: Peer) -> None:
        head = await peer.read_head()
        assert header(head, b"content-encoding") == b"gzip"
        assert await peer.read(4) == b"\x1f\x8b??"
        await peer.send(OK)

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        request = get(door, guest.port, b"/", b"Content-Encoding: gzip\r\nContent-Length: 4\r\n", b"POST")
        await client.send(request + b"\x1f\x8b??")
        assert (await client.read_answer())[1] == b"ok"


async def test_expect_continue_is_the_guests_to_answer() -> None:
    async def script(peer: Peer) -> None:
        head = await peer.read_head()
        assert header(head, b"expect") == b"100-continue"
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await peer.read(2) == b"hi"
        await peer.send(OK)

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port, b"/", b"Expect: 100-continue\r\nContent-Length: 2\r\n", b"POST"))
        assert await client.read_head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"hi")
        assert (await client.read_answer())[1] == b"ok"


async def test_a_guest_may_answer_before_it_has_read_the_body() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port, b"/", b"Content-Length: 1000000\r\n", b"POST") + b"x" * 1000)
        head, body = await client.read_answer()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert body == b"no"


@pytest.mark.parametrize(
    "method, answer",
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"),
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n"),
    ],
)
async def test_answers_without_a_body_leave_both_connections_usable(method: bytes, answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(answer)
        await answer_always(peer)

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port, method=method))
        assert await client.read_head() == answer
        await client.send(get(door, guest.port))
        assert (await client.read_answer())[1] == b"ok"
        assert guest.connections == 1


async def test_an_answer_that_ends_with_its_connection_is_framed_for_the_client() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port))
        assert header(await client.read_head(), b"transfer-encoding") == b"chunked"
        body = await client.read(18)
        while not body.endswith(b"0\r\n\r\n"):
            body += await client.read(1)
    assert b"until the end" in body


async def test_an_old_client_gets_a_plain_body_and_the_end_of_its_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = (await client.read_to_end()).partition(b"\r\n\r\n")
    assert header(head + b"\r\n", b"transfer-encoding") is None
    assert body == b"ok"


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nnonsense\r\n",
    ],
)
async def test_an_answer_that_breaks_off_never_looks_complete(start: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(start)

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port))
        head, _, body = (await client.read_to_end()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert not body.endswith(b"0\r\n\r\n")
    assert len(body) < 10 or header(head, b"transfer-encoding") == b"chunked"


async def test_a_reset_by_the_guest_is_not_an_orderly_end_for_an_old_client() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        await broken.wait()
        peer.reset()

    broken = asyncio.Event()
    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port).replace(b"HTTP/1.1", b"HTTP/1.0"))
        await client.read_head()
        assert await client.read(4) == b"half"
        broken.set()
        with pytest.raises(ConnectionError):
            await client.read_to_end()


async def test_a_client_that_leaves_ends_the_connection_to_the_guest() -> None:
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        try:
            await peer.read_to_end()
        finally:
            left.set()

    async with Door() as door, ScriptedGuest(script) as guest:
        door.orchestrator.add()
        client = await door.connect()
        await client.send(get(door, guest.port))
        await client.read_head()
        await client.close()
        async with asyncio.timeout(20):
            await left.wait()


async def test_a_client_that_breaks_off_its_body_ends_the_connection_to_the_guest() -> None:
    arrived = asyncio.Event()
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        arrived.set()
        try:
            body = await peer.read_to_end()
            assert b"0\r\n\r\n" not in body
        finally:
            left.set()

    async with Door() as door, ScriptedGuest(script) as guest:
        door.orchestrator.add()
        client = await door.connect()
        await client.send(get(door, guest.port, b"/", b"Transfer-Encoding: chunked\r\n", b"POST") + b"3\r\nabc\r\n")
        await arrived.wait()
        client.reset()
        async with asyncio.timeout(20):
            await left.wait()


async def test_a_malformed_body_is_refused_and_never_completed_for_the_guest() -> None:
    bodies: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.read_head()
        try:
            bodies.append(await peer.read_to_end())
        except ConnectionError:
            bodies.append(b"")

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port, b"/", b"Transfer-Encoding: chunked\r\n", b"POST") + b"3\r\nabc\r\n")
        await client.send(b"nonsense\r\n\r\n")
        assert b" 400 " in await client.read_head()
    assert not any(body.endswith(b"0\r\n\r\n") for body in bodies)


async def test_a_slow_client_makes_the_guest_wait() -> None:
    size = 64 * 2**20
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.read_head()
        await peer.send(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(size // 65536):
            await peer.send(bytes(65536))
            sent += 65536

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port))
        await client.read_head()
        before = -1
        while before != sent:
            before = sent
            for _ in range(200):
                await asyncio.sleep(0)
        assert sent < size // 2
        remaining = size
        while remaining:
            remaining -= len(await client.reader.read(2**20))


async def test_connections_are_reused_within_a_generation_and_never_across() -> None:
    async with Door() as door, ScriptedGuest(answer_always) as guest, await door.connect() as client:
        door.orchestrator.add()
        for _ in range(3):
            await client.send(get(door, guest.port))
            await client.read_answer()
        assert guest.connections == 1
        door.orchestrator.generation += 1
        await client.send(get(door, guest.port))
        await client.read_answer()
        assert guest.connections == 2


async def test_a_kept_connection_that_the_guest_closed_is_replaced() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(OK)

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        for _ in range(3):
            await client.send(get(door, guest.port))
            assert (await client.read_answer())[1] == b"ok"


async def test_bytes_that_nobody_asked_for_poison_a_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
        await peer.read_to_end()

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        for _ in range(2):
            await client.send(get(door, guest.port))
            assert (await client.read_answer())[1] == b"ok"
        assert guest.connections == 2


async def test_cutting_a_sandbox_ends_its_streams_at_once_and_says_that_it_is_gone() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        if guest.connections == 1:
            await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await waiting.wait()

    waiting = asyncio.Event()
    async with Door() as door, ScriptedGuest(script) as guest:
        sandbox = door.orchestrator.add()
        async with await door.connect() as streaming, await door.connect() as silent:
            await streaming.send(get(door, guest.port))
            await streaming.read_head()
            await silent.send(get(door, guest.port))
            while guest.connections < 2:
                await asyncio.sleep(0)
            await door.orchestrator.kill(sandbox.id)
            door.carrier.cut(sandbox.id)
            assert not (await streaming.read_to_end()).endswith(b"0\r\n\r\n")
            head, body = await silent.read_answer()
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"The sandbox was not found" in body


async def test_a_sandbox_carries_only_so_many_exchanges_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await released.wait()
        await peer.send(OK)

    released = asyncio.Event()
    async with (
        Door(proxy=ProxySettings(exchanges_per_sandbox=1)) as door,
        ScriptedGuest(script) as guest,
        await door.connect() as first,
        await door.connect() as second,
    ):
        door.orchestrator.add()
        await first.send(get(door, guest.port))
        while guest.connections < 1:
            await asyncio.sleep(0)
        await second.send(get(door, guest.port))
        head, _ = await second.read_answer()
        assert head.startswith(b"HTTP/1.1 429 ")
        assert header(head, b"retry-after") == b"1"
        released.set()
        assert (await first.read_answer())[1] == b"ok"


@pytest.mark.parametrize(
    "answer",
    [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000, b"HTTP/1.1 103 E\r\n\r\n" * 20],
    ids=["nothing", "another protocol", "endless head", "endless interim answers"],
)
async def test_a_program_that_does_not_answer_properly_is_a_502(answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(answer)

    async with Door() as door, ScriptedGuest(script) as guest, await door.connect() as client:
        door.orchestrator.add()
        await client.send(get(door, guest.port))
        head, body = await client.read_answer()
    assert head.startswith(b"HTTP/1.1 502 ")
    assert b'"code":502' in body
    assert b"was not found" not in body
    assert b"port is not open" not in body
