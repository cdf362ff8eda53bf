"""The JavaScript client: each of its tests is a test here."""

from typing import Any

import pytest

from contract import node, places
from contract.node import Case
from contract.places import ALONE, Place

CASES = [pytest.param(case, marks=pytest.mark.line(*case.ids), id=case.title) for case in node.cases()]


@pytest.fixture(scope="session", params=places.parameters())
def results(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What Node said of every test, in each place."""
    node.install()
    place: Place = request.getfixturevalue("lone" if request.param == ALONE else "machine")
    return node.run_tests(place)


@pytest.mark.parametrize("case", CASES)
def test_javascript(results: dict[str, Any], case: Case) -> None:
    assert case.title in results, f"{case.file} ended before this test, or did not start"
    assert results[case.title]["passed"], results[case.title]["reason"]
