"""A pytest plugin that notes which lines of the checklist each collected test proves, with which client and where."""

from collections.abc import Iterator

import pytest

from contract import clients
from contract.checklist import Proof, write_proofs
from contract.places import ALONE, MACHINE

_CLIENTS = {clients.SYNCHRONOUS: "Python", clients.ASYNCHRONOUS: "Python async"}
_FILES = {"test_javascript.py": "JavaScript", "test_cli.py": "CLI"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    write_proofs({proof for item in items for proof in _proofs(item)})


def _proofs(item: pytest.Item) -> Iterator[Proof]:
    lines = {line for mark in item.iter_markers("line") for line in mark.args}
    for line in lines:
        for client in _clients(item):
            yield Proof(line, client, _place(item), _failure(item))


def _clients(item: pytest.Item) -> Iterator[str]:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    name = parameters.get("sandboxes")
    if name is None:
        yield _FILES.get(item.path.name, "raw HTTP")
        return
    yield _CLIENTS[str(name)]
    if name == clients.SYNCHRONOUS and not any(item.get_closest_marker(mark) for mark in ("newest", "once")):
        yield "older Python"


def _place(item: pytest.Item) -> str:
    return MACHINE if item.get_closest_marker("vm") else ALONE


def _failure(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xfail")
    return "" if mark is None else str(mark.kwargs["reason"])
