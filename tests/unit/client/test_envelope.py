import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.client.envelope import PAYLOAD_BYTES_LIMIT, EnvelopeDecoder, EnvelopeKind, encode
from agentenv.client.errors import AnswerInvalid


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 50), min_size=1))
def test_payloads_come_out_as_they_went_in_however_the_bytes_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(encode, payloads))
    decoder = EnvelopeDecoder()
    found = []
    position = turn = 0
    while position < len(stream):
        length = cuts[turn % len(cuts)]
        found += decoder.feed(stream[position : position + length])
        position, turn = position + length, turn + 1

    assert [envelope.payload for envelope in found] == payloads
    assert all(envelope.kind is EnvelopeKind.MESSAGE for envelope in found)


def test_an_oversized_length_is_refused_before_its_bytes_come() -> None:
    head = b"\x00" + (PAYLOAD_BYTES_LIMIT + 1).to_bytes(4, "big")

    with pytest.raises(AnswerInvalid, match="announces"):
        EnvelopeDecoder().feed(head)


@pytest.mark.parametrize("flags", [1, 3, 0x48, 0xFF])
def test_unknown_flags_are_refused(flags: int) -> None:
    with pytest.raises(AnswerInvalid, match="unknown flags"):
        EnvelopeDecoder().feed(bytes([flags, 0, 0, 0, 0]))


@given(st.binary(max_size=200))
def test_garbage_becomes_envelopes_no_longer_than_itself_or_is_refused(garbage: bytes) -> None:
    with contextlib.suppress(AnswerInvalid):
        found = EnvelopeDecoder().feed(garbage)
        assert sum(5 + len(envelope.payload) for envelope in found) <= len(garbage)
