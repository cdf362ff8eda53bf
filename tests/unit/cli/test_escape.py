import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.cli.escape import EscapeFilter


@pytest.mark.parametrize(
    "keys, passed, leaves",
    [
        (b"~.", b"", True),
        (b"ls\r~.rest", b"ls\r", True),
        (b"a~.", b"a~.", False),
        (b"~~.", b"~.", False),
        (b"~x", b"~x", False),
        (b"\x03~.", b"\x03", True),
    ],
)
def test_keys_one_by_one_mean_the_same_as_all_at_once(keys: bytes, passed: bytes, leaves: bool) -> None:
    assert EscapeFilter().feed(keys) == (passed, leaves)

    escape = EscapeFilter()
    results = []
    for key in keys:
        results.append(escape.feed(bytes([key])))
        if results[-1][1]:
            break
    assert (b"".join(part for part, _ in results), results[-1][1]) == (passed, leaves)


@given(st.binary().filter(lambda keys: b"~" not in keys))
def test_keys_without_the_escape_pass_unchanged(keys: bytes) -> None:
    assert EscapeFilter().feed(keys) == (keys, False)
