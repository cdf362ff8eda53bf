"""The chunked decoder, piece by piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.proxy.chunks import LAST_CHUNK, ChunkedDecoder, encode_chunk
from agentenv.proxy.errors import GuestAnswerBroken


@given(st.lists(st.binary(min_size=1, max_size=40)), st.lists(st.integers(1, 7)))
def test_what_was_encoded_is_decoded_however_it_is_cut(payloads: list[bytes], cuts: list[int]) -> None:
    coded = b"".join(map(encode_chunk, payloads)) + LAST_CHUNK + b"NEXT"
    decoder = ChunkedDecoder()
    decoded = b""
    surplus = b""
    sizes = iter(cuts)
    while coded:
        size = next(sizes, len(coded))
        part, coded = coded[:size], coded[size:]
        if decoder.is_finished:
            surplus += part
            continue
        decoded += decoder.feed(part)
        surplus = decoder.surplus
    assert decoder.is_finished
    assert decoded == b"".join(payloads)
    assert surplus == b"NEXT"


def test_extensions_and_trailers_are_dropped() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(b"3;name=value\r\nabc\r\n0\r\nTrailer: x\r\n\r\n") == b"abc"
    assert decoder.is_finished


@pytest.mark.parametrize(
    "coded",
    [
        b"xyz\r\n",
        b"-1\r\n",
        b"\r\n",
        b"0x5\r\nhello\r\n",
        b"3\r\nabcd\r\n",
        b"f" * 17 + b"\r\n",
        b"1" * 5000,
        b"0\r\n" + b"T: " + b"x" * 20000 + b"\r\n",
        b"0\r\n" + b"T: x\r\n" * 5000,
    ],
)
def test_anything_else_is_refused(coded: bytes) -> None:
    with pytest.raises(GuestAnswerBroken):
        ChunkedDecoder().feed(coded)
