"""The daemon's internal routes, in disguise."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.api.envd_paths import is_internal_path

NAMES = ["init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "memory", "upgrade", "shutdown"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "disguise",
    [
        "/{}", "//{}", "/{}/", "/{}//", "/./{}", "/files/../{}", "/%2e/{}", "/x/%2E%2e/{}", "/{}?a=b", "/{}#x",
        "/{};v=1", "/%2F{}", "/{}%2F", "/{}%3Fa", "\\{}", "/%5c{}", "/{}/..;/{}", "/{}%00", "/{}%20", "/{}%09",
    ],
)  # fmt: skip
def test_every_disguise_is_seen_through(name: str, disguise: str) -> None:
    assert is_internal_path(disguise.format(name, name))
    assert is_internal_path(disguise.format(name.upper(), name))


@given(st.sampled_from(NAMES), st.integers(1, 6), st.data())
def test_percent_encoding_of_any_depth_hides_nothing(name: str, depth: int, data: st.DataObject) -> None:
    marks = data.draw(st.lists(st.booleans(), min_size=len(name), max_size=len(name)))
    path = "/" + "".join(f"%{ord(letter):02x}" if mark else letter for letter, mark in zip(name, marks, strict=True))
    for _ in range(depth - 1):
        path = quote(path)
    assert is_internal_path(path)


@pytest.mark.parametrize(
    "path",
    ["/", "/files?path=/init", "/health", "/process.Process/Start", "/initial", "/x/init", "/files/compose", "*", ""],
)
def test_what_clients_need_passes(path: str) -> None:
    assert not is_internal_path(path)
