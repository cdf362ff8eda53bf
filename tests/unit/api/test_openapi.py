"""The published description names exactly the routes and request fields that exist."""

import re
from pathlib import Path

from agentenv.api.models import NewSandbox
from agentenv.api.routes import make_routes
from agentenv.api.settings import ApiSettings

SPEC = (Path(__file__).parents[3] / "spec" / "openapi.yaml").read_text()


def test_every_route_is_described_and_nothing_else() -> None:
    described: set[tuple[str, str]] = set()
    path = ""
    for line in SPEC.partition("\npaths:\n")[2].partition("\ncomponents:\n")[0].splitlines():
        if match := re.fullmatch(r"  (/\S*):", line):
            path = match[1]
        elif match := re.fullmatch(r"    (get|post|put|patch|delete):", line):
            described.add((match[1].upper(), path))
    assert described == {(route.method, route.path) for route in make_routes(ApiSettings())}


def test_every_route_without_a_key_is_described_so() -> None:
    open_paths = set(re.findall(r"  (/\S*):\n    get:\n(?:      (?!security).*\n)*      security: \[\]", SPEC))
    assert open_paths == {route.path for route in make_routes(ApiSettings()) if not route.needs_key}


def test_every_field_of_create_is_described_and_nothing_else() -> None:
    section = SPEC.partition("\n    NewSandbox:\n      type: object\n")[2].partition("\n    Sandbox:\n")[0]
    described = set(re.findall(r"^        (\w+):", section, re.MULTILINE))
    assert described == set(NewSandbox.model_fields)
