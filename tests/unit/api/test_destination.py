"""Where a request leads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from agentenv.api.destination import Destination, find_destination, origin_form
from agentenv.api.errors import RequestInvalid

ID = "i0123456789abcdefghi"


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict([("Host", "door"), *pairs]))


ROUTED = headers(("E2b-Sandbox-Id", ID), ("E2b-Sandbox-Port", "8080"))


@pytest.mark.parametrize("path", ["/health", "/sandboxes", "/metrics", "/v2/sandboxes?limit=1", "//x", "*"])
def test_routing_headers_beat_every_path(path: str) -> None:
    assert find_destination(ROUTED, path, ()) == Destination(ID, 8080, path)


@pytest.mark.parametrize(
    "given_names", [("x-agentenv-sandbox-id", "x-agentenv-target-port"), ("E2B-SANDBOX-ID", "x-agentenv-target-port")]
)
def test_either_spelling_of_the_headers_routes(given_names: tuple[str, str]) -> None:
    routed = headers((given_names[0], ID), (given_names[1], "80"))
    assert find_destination(routed, "/", ()) == Destination(ID, 80, "/")


@pytest.mark.parametrize(
    "path, rest",
    [
        ("/proxy", "/"),
        ("/proxy/", "/"),
        ("/proxy?a=b", "/?a=b"),
        ("/proxy/a%2Fb?c", "/a%2Fb?c"),
        ("/proxy//a", "//a"),
        ("/proxyless", "/proxyless"),
    ],
)
def test_the_proxy_prefix_is_stripped(path: str, rest: str) -> None:
    destination = find_destination(ROUTED, path, ())
    assert destination is not None
    assert destination.path == rest


@pytest.mark.parametrize(
    "pairs",
    [
        [("E2b-Sandbox-Id", ID)],
        [("E2b-Sandbox-Port", "80")],
        [("E2b-Sandbox-Id", ""), ("E2b-Sandbox-Port", "80")],
        [("E2b-Sandbox-Id", ID), ("E2b-Sandbox-Id", "other"), ("E2b-Sandbox-Port", "80")],
        [("E2b-Sandbox-Id", ID), ("x-agentenv-sandbox-id", "other"), ("E2b-Sandbox-Port", "80")],
        [("E2b-Sandbox-Id", ID), ("E2b-Sandbox-Port", "0")],
        [("E2b-Sandbox-Id", ID), ("E2b-Sandbox-Port", "65536")],
        [("E2b-Sandbox-Id", ID), ("E2b-Sandbox-Port", "-1")],
        [("E2b-Sandbox-Id", ID), ("E2b-Sandbox-Port", "٣")],
        [("E2b-Sandbox-Id", ID), ("E2b-Sandbox-Port", "80 81")],
    ],
)
def test_half_a_destination_is_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(RequestInvalid):
        find_destination(headers(*pairs), "/", ())


@given(st.integers(1, 65535), st.sampled_from(["", ":80", ":", ".", ".:443"]), st.booleans())
def test_a_host_name_names_port_and_sandbox(port: int, suffix: str, upper: bool) -> None:
    host = f"{port}-{ID}.boxes.example{suffix}"
    named = CIMultiDictProxy(CIMultiDict([("Host", host.upper() if upper else host)]))
    assert find_destination(named, "/sandboxes", ("boxes.example",)) == Destination(ID, port, "/sandboxes")


@given(st.text(max_size=80))
def test_no_host_name_breaks_the_parser(host: str) -> None:
    named = CIMultiDictProxy(CIMultiDict([("Host", f"{host}.boxes.example")]))
    try:
        destination = find_destination(named, "/", ("boxes.example",))
    except RequestInvalid:
        return
    assert destination is None or 1 <= destination.port <= 65535


@pytest.mark.parametrize(
    "host", ["api.boxes.example", "boxes.example", f"80-{ID}.other.example", f"80-{ID}", "", f"80{ID}.boxes.example"]
)
def test_other_hosts_lead_to_the_control_plane(host: str) -> None:
    named = CIMultiDictProxy(CIMultiDict([("Host", host)]))
    assert find_destination(named, "/", ("boxes.example",)) is None


def test_headers_beat_the_host_name() -> None:
    both = CIMultiDict(ROUTED)
    both["Host"] = f"1-{'i' + 'z' * 19}.boxes.example"
    assert find_destination(CIMultiDictProxy(both), "/", ("boxes.example",)) == Destination(ID, 8080, "/")


def test_a_full_url_is_taken_only_for_the_host_that_was_named() -> None:
    assert origin_form("http://door/a?b#c", headers()) == "/a?b"
    assert origin_form("http://door?b", headers()) == "/?b"
    with pytest.raises(RequestInvalid):
        origin_form("http://elsewhere/a", headers())
    with pytest.raises(RequestInvalid):
        origin_form("elsewhere:443", headers())
