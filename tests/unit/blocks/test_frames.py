"""Frames: what we send is readable, and nothing that comes in is believed unchecked."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agentenv.base.errors import AgentEnvError
from agentenv.blocks import frames
from agentenv.blocks.errors import BlocksConflict, BlocksRefused, DaemonBroken, DiskSpaceShort


def test_request_is_a_length_and_an_object() -> None:
    frame = frames.encode_request(7, "stat", {"name": "disk-é"})

    assert struct.unpack(">I", frame[:4]) == (len(frame) - 4,)
    assert json.loads(frame[4:]) == {"version": 1, "id": 7, "verb": "stat", "arguments": {"name": "disk-é"}}


def test_request_that_no_daemon_would_take_is_refused_here() -> None:
    with pytest.raises(BlocksRefused, match="open has"):
        frames.encode_request(1, "open", {"name": "x" * frames.LIMIT_BYTES})


@pytest.mark.parametrize("length", [0, frames.LIMIT_BYTES + 1, 2**32 - 1])
def test_length_that_no_honest_daemon_sends_is_refused(length: int) -> None:
    with pytest.raises(DaemonBroken, match=str(length)):
        frames.decode_length(struct.pack(">I", length))


def test_error_comes_back_as_the_class_of_its_kind_with_its_code() -> None:
    answer = frames.decode_answer(
        b'{"id": 3, "error": {"kind": "conflict", "code": "image_in_use", "message": "it is in use"}}'
    )

    assert isinstance(answer.error, BlocksConflict)
    assert (answer.number, answer.error.code, answer.error.message) == (3, "image_in_use", "it is in use")


def test_error_of_an_unknown_kind_is_the_daemons_bug() -> None:
    answer = frames.decode_answer(b'{"id": 3, "error": {"kind": "odd", "code": "x", "message": "m"}}')
    assert isinstance(answer.error, DaemonBroken)


def test_long_words_of_an_error_are_cut() -> None:
    body = {"id": 1, "error": {"kind": "exhausted", "code": "c" * 5000, "message": "m" * 5000}}
    error = frames.decode_answer(json.dumps(body).encode()).error
    assert isinstance(error, DiskSpaceShort)
    assert (len(error.code), len(error.message)) == (64, 1000)


@given(
    body=some.binary(max_size=200)
    | some.recursive(
        some.none() | some.booleans() | some.integers() | some.text(),
        lambda inner: (
            some.lists(inner) | some.dictionaries(some.sampled_from(["id", "result", "error", "kind"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_are_an_answer_or_a_typed_error(body: bytes) -> None:
    try:
        answer = frames.decode_answer(body)
    except DaemonBroken:
        return
    assert isinstance(answer.result, dict)
    assert answer.error is None or isinstance(answer.error, AgentEnvError)


def test_deep_nesting_is_a_typed_error() -> None:
    with pytest.raises(DaemonBroken, match="not JSON"):
        frames.decode_answer(b"[" * 100_000)
