"""One real server for the whole run, and one real sandbox for the tests that leave no trace in it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2b import Sandbox

from agentenv.main.demo.scratch import ScratchServer
from support.server import Access, access_to, prepared_home, real_home, real_server, settings_for_tests

DOMAIN = "sandboxes.test"
CreateSandbox = Callable[..., Sandbox]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/e2e" in item.path.as_posix():
            item.add_marker(pytest.mark.vm)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session", autouse=True)
def prepared() -> None:
    """Prepare the machine as a user would; nothing happens when it is prepared."""
    command = [sys.executable, "-m", "agentenv.main", "setup"]
    subprocess.run(command, check=True, env=os.environ | {"AENV_HOME": str(prepared_home())})


@pytest.fixture(scope="session")
def server(prepared: None) -> Iterator[ScratchServer]:
    """A server that all tests share."""
    environment = {"AENV_API__DOMAINS": f'["{DOMAIN}"]'}
    with real_home("test-shared") as home, real_server(home, settings_for_tests(), environment) as started:
        yield started


@pytest.fixture(scope="session")
def access(server: ScratchServer) -> Access:
    """What the SDK must be told to reach the shared server."""
    return access_to(server)


@pytest.fixture
def create_sandbox(access: Access) -> Iterator[CreateSandbox]:
    """Return a function that creates a sandbox, which is killed after the test."""
    made: list[Sandbox] = []

    def create(**options: Any) -> Sandbox:
        defaults: dict[str, Any] = {"timeout": 600, "request_timeout": 120}
        sandbox = Sandbox.create(**(defaults | options), **access)
        made.append(sandbox)
        return sandbox

    yield create
    for sandbox in made:
        sandbox.kill()


@pytest.fixture(scope="session")
def sandbox(access: Access) -> Iterator[Sandbox]:
    """A sandbox that all tests share; they use names of their own in it."""
    shared = Sandbox.create(timeout=3600, request_timeout=120, metadata={"is": "shared"}, **access)
    yield shared
    shared.kill()
