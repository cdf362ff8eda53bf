from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from support import aenv
from support.fake_server import API_KEY, FakeServer

SANDBOX = "iabcdefghijklmnopqrst"
Run = Callable[..., Awaitable[aenv.Finished]]


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer().running() as server:
        server.add_sandbox(SANDBOX)
        yield server


@pytest.fixture
def environment(server: FakeServer, tmp_path: Path) -> dict[str, str]:
    return aenv.environment(tmp_path, {"AENV_API_URL": server.url, "AENV_API_KEY": API_KEY})


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Return a function that runs `aenv` with words against the fake server."""

    async def run_with(*words: str, stdin: bytes | None = None) -> aenv.Finished:
        return await aenv.run_aenv(*words, environment=environment, stdin=stdin)

    return run_with
