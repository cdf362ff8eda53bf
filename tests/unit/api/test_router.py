"""Paths and methods."""

import pytest
from aiohttp import web

from agentenv.api.call import Call
from agentenv.api.errors import MethodNotAllowed, RequestInvalid, RouteNotFound
from agentenv.api.router import Route, Router


async def endpoint(call: Call) -> web.Response:
    raise NotImplementedError


ROUTER = Router(
    [
        Route("GET", "/things/{thing}", "thing_get", endpoint),
        Route("GET", "/things/all", "thing_all", endpoint),
        Route("DELETE", "/things/{thing}", "thing_delete", endpoint),
    ]
)


def test_a_parameter_is_matched_encoded_and_decoded_once() -> None:
    route, parameters = ROUTER.match("GET", "/things/a%2Fb%3Ac%2525")
    assert route.verb == "thing_get"
    assert parameters == {"thing": "a/b:c%25"}


def test_a_literal_beats_a_parameter() -> None:
    assert ROUTER.match("GET", "/things/all")[0].verb == "thing_all"
    assert ROUTER.match("DELETE", "/things/all")[0].verb == "thing_delete"


@pytest.mark.parametrize("path", ["/", "/things", "/things/", "/things/a/", "//things/a", "/things/a/b", "*"])
def test_other_paths_are_unknown(path: str) -> None:
    with pytest.raises(RouteNotFound):
        ROUTER.match("GET", path)


def test_another_method_is_told_which_are_possible() -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        ROUTER.match("PUT", "/things/a")
    assert set(caught.value.allowed) == {"GET", "DELETE"}


def test_a_path_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(RequestInvalid):
        ROUTER.match("GET", "/things/%ff")
