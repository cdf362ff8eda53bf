"""The clients and places that every contract test runs with, and the marks that tie tests to the checklist."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract import clients, places
from contract.blocking import EventLoop, blocking_sandboxes
from contract.node import Case
from contract.places import ALONE, Place

CreateSandbox = Callable[..., Any]


def pytest_configure(config: pytest.Config) -> None:
    for mark in (
        "line(*ids): the lines of the checklist that the test proves",
        "newest: not for the older Python client, which cannot do it or does it otherwise",
        "synchronous: not for the asynchronous Python client, which cannot do it or does it otherwise",
        "once: one Python client is enough, because the test is slow and the client adds nothing",
    ):
        config.addinivalue_line("markers", mark)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.timeout(600))
    needless = {item for item in ours if is_needless(item)}
    items[:] = [item for item in items if item not in needless]
    config.hook.pytest_deselected(items=list(needless))


def is_needless(item: pytest.Item) -> bool:
    """Return whether a test and its parameters do not go together."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    client = parameters.get("sandboxes", clients.names()[0])
    case = parameters.get("case")
    return (
        (client == clients.ASYNCHRONOUS and has(item, "synchronous"))
        or (client == clients.OLDER and has(item, "newest"))
        or (client != clients.SYNCHRONOUS and has(item, "once"))
        or (isinstance(case, Case) and case.needs_machine and parameters["results"] == ALONE)
    )


def has(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None


@pytest.fixture(scope="session")
def prepared() -> None:
    """Prepare the machine."""
    if places.inherited() is None:
        places.prepare_machine()


@pytest.fixture(scope="session")
def lone(prepared: None) -> Iterator[Place]:
    """The daemon alone."""
    if (given := places.inherited()) is not None:
        yield given
    else:
        with places.lone_place() as place:
            yield place


@pytest.fixture(scope="session")
def machine(prepared: None) -> Iterator[Place]:
    """A server with one sandbox that all tests share."""
    if (given := places.inherited()) is not None:
        yield given
    else:
        with places.machine_place() as place:
            yield place


@pytest.fixture(scope="session", params=places.parameters())
def place(request: pytest.FixtureRequest) -> Place:
    """Each place in turn."""
    chosen: Place = request.getfixturevalue("lone" if request.param == ALONE else "machine")
    return chosen


@pytest.fixture(scope="session")
def event_loop_thread() -> Iterator[EventLoop]:
    """Where the asynchronous client lives."""
    loop = EventLoop()
    yield loop
    loop.close()


@pytest.fixture(scope="session", params=clients.names())
def sandboxes(request: pytest.FixtureRequest, event_loop_thread: EventLoop) -> Any:
    """The class `Sandbox` of each client in turn."""
    from e2b import Sandbox

    assert clients.installed_version() == clients.expected_version(request.param)
    return blocking_sandboxes(event_loop_thread) if request.param == clients.ASYNCHRONOUS else Sandbox


@pytest.fixture(scope="session")
def sandbox(place: Place, sandboxes: Any) -> Any:
    """The shared sandbox of each place, through each client; tests use names of their own in it."""
    return sandboxes.connect(place.sandbox_id, **place.options)


@pytest.fixture(scope="session")
def tokened(machine: Place, sandboxes: Any) -> Any:
    """The shared sandbox of the machine: what only a sandbox with a token and a server can show."""
    return sandboxes.connect(machine.sandbox_id, **machine.options)


@pytest.fixture
def create_sandbox(machine: Place, sandboxes: Any) -> Iterator[CreateSandbox]:
    """Return a function that creates a sandbox, which is killed after the test."""
    made: list[Any] = []

    def create(**options: Any) -> Any:
        sandbox = sandboxes.create(**{"timeout": 600, "request_timeout": 120, **machine.options, **options})
        made.append(sandbox)
        return sandbox

    yield create
    for sandbox in made:
        sandbox.kill()


@pytest.fixture
def directory(sandbox: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A directory of its own for a test, below the user's home."""
    path = f"/home/user/contract/{abs(hash(request.node.nodeid))}"
    sandbox.files.make_dir(path)
    yield path
    sandbox.files.remove(path)
