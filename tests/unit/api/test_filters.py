"""Filters of the lists, encoded as the SDKs encode them."""

import contextlib
from urllib.parse import quote, unquote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.api.errors import RequestInvalid
from agentenv.api.filters import parse_metadata, parse_states
from agentenv.orchestrator.base import SandboxState

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(st.dictionaries(TEXT, TEXT | st.just(""), max_size=5))
def test_what_the_sdk_encodes_is_what_it_meant(metadata: dict[str, str]) -> None:
    inner = urlencode({quote(key): quote(value) for key, value in metadata.items()})
    on_the_wire = urlencode({"metadata": inner}).partition("=")[2]
    assert parse_metadata(unquote_plus(on_the_wire)) == metadata


def test_the_wire_form_that_was_seen() -> None:
    assert parse_metadata(unquote_plus("k%252520y%3Dv%2525261")) == {"k y": "v&1"}


def test_plain_pairs_work_too() -> None:
    assert parse_metadata("user=a&app=b") == {"user": "a", "app": "b"}


@pytest.mark.parametrize("text", ["a", "=b", "a=b&", "&", "a=b=c", "a=%", "a=%zz", "a=%25zz", "a=%ff", "a=1&a=2"])
def test_malformed_metadata_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        parse_metadata(text)


@given(st.text(max_size=60))
def test_no_metadata_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(RequestInvalid):
        parse_metadata(text)


def test_a_pausing_sandbox_counts_as_paused() -> None:
    assert parse_states("paused") == {SandboxState.PAUSING, SandboxState.PAUSED}
    assert parse_states("running,paused") >= {SandboxState.RUNNING, SandboxState.PAUSING, SandboxState.PAUSED}


def test_a_sandbox_that_is_captured_or_comes_back_counts_as_running() -> None:
    assert parse_states("running") == set(SandboxState) - {
        SandboxState.STARTING,
        SandboxState.PAUSING,
        SandboxState.PAUSED,
        SandboxState.STOPPING,
    }


@pytest.mark.parametrize("text", ["starting", "running,", "Running", " running"])
def test_other_states_are_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        parse_states(text)
