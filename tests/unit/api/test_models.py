"""Bodies, taken strictly."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.api.errors import RequestInvalid
from agentenv.api.models import NewSandbox, parse_model


def body(**fields: object) -> bytes:
    return json.dumps({"templateID": "base", **fields}).encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"timeout": "10"},
        {"timeout": 10.0},
        {"timeout": True},
        {"autoPause": "true"},
        {"autoPause": 1},
        {"autoResume": True},
        {"autoResume": {}},
        {"allow_internet_access": "no"},
        {"metadata": {"a": 1}},
        {"metadata": []},
        {"metadata": {"": "x"}},
        {"metadata": {str(n): "" for n in range(300)}},
        {"envVars": {"A=B": "x"}},
        {"envVars": {"A": "x\0"}},
        {"envVars": {"": "x"}},
        {"network": {"allowPublicTraffic": 0}},
        {"network": {"maskRequestHost": "a\r\nb"}},
        {"templateID": ""},
        {"templateID": None},
        {"templateID": "x" * 600},
    ],
)
def test_wrong_types_and_sizes_are_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse_model(NewSandbox, body(**fields))
    assert next(iter(fields)) in caught.value.message


@pytest.mark.parametrize("raw", [b"{", b"[]", b"null", b'"x"', b"\xff", b"{}x", b"NaN", b"[" * 100_000])
def test_what_is_not_a_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(RequestInvalid):
        parse_model(NewSandbox, raw)


def test_unknown_fields_are_named_with_their_place() -> None:
    _, ignored = parse_model(NewSandbox, body(colour="red", network={"shape": 1}, autoResume={"enabled": True, "x": 2}))
    assert sorted(ignored) == ["autoResume.x", "colour", "network.shape"]


def test_null_means_absent() -> None:
    parsed, ignored = parse_model(NewSandbox, body(timeout=None, network=None, metadata=None, mcp=None, iam=None))
    assert parsed.timeout is None
    assert not ignored


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(raw: bytes) -> None:
    with contextlib.suppress(RequestInvalid):
        parse_model(NewSandbox, raw)


def test_a_message_never_repeats_what_was_sent() -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse_model(NewSandbox, body(envVars={"TOKEN": 12345678}))
    assert "12345678" not in caught.value.message
