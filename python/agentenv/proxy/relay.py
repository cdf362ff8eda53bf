"""The body of a guest's answer, on its way to the client: streamed, re-framed, and never complete by accident."""

import asyncio
from collections.abc import Awaitable, Callable

from agentenv.proxy.answer import AnswerHead, Framing
from agentenv.proxy.chunks import LAST_CHUNK, ChunkedDecoder, encode_chunk
from agentenv.proxy.errors import GuestAnswerBroken
from agentenv.proxy.upstream import UpstreamConnection

Write = Callable[[bytes], Awaitable[None]]

_DECODE_BYTES = 65536


async def relay_body(connection: UpstreamConnection, head: AnswerHead, write: Write, *, is_chunked: bool) -> None:
    """Copy a whole body to `write`, chunked when `is_chunked`. Raises `GuestAnswerBroken` when it breaks off."""
    if head.framing is Framing.LENGTH:
        await _relay_length(connection, head.length, write)
    elif head.framing is Framing.CHUNKED:
        await _relay_chunks(connection, write, is_chunked=is_chunked)
    elif head.framing is Framing.CLOSE:
        await _relay_to_end(connection, write, is_chunked=is_chunked)


async def _relay_length(connection: UpstreamConnection, remaining: int, write: Write) -> None:
    while remaining:
        piece = await connection.receive()
        if not piece:
            raise GuestAnswerBroken("the program in the sandbox sent less than it announced")
        if len(piece) > remaining:
            connection.unread(piece[remaining:])
            piece = piece[:remaining]
        remaining -= len(piece)
        await write(piece)


async def _relay_chunks(connection: UpstreamConnection, write: Write, *, is_chunked: bool) -> None:
    decoder = ChunkedDecoder()
    while not decoder.is_finished:
        piece = await connection.receive()
        if not piece:
            raise GuestAnswerBroken("the program in the sandbox broke off its answer")
        for start in range(0, len(piece), _DECODE_BYTES):
            part = piece[start : start + _DECODE_BYTES]
            payload = decoder.feed(part)
            output = encode_chunk(payload) if payload and is_chunked else payload
            if decoder.is_finished:
                connection.unread(decoder.surplus + piece[start + _DECODE_BYTES :])
                output += LAST_CHUNK if is_chunked else b""
            if output:
                await write(output)
            if decoder.is_finished:
                return
            if len(payload) * 2 < len(part):
                # Decoding tiny chunks is a loop in Python: a hostile guest must not hold the event loop with them.
                await asyncio.sleep(0)


async def _relay_to_end(connection: UpstreamConnection, write: Write, *, is_chunked: bool) -> None:
    while piece := await connection.receive():
        await write(encode_chunk(piece) if is_chunked else piece)
    if is_chunked:
        await write(LAST_CHUNK)
