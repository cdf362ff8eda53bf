"""The repository in a directory: the contract, with a second node beside it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentenv.objects.directory import DirectoryStore
from agentenv.snapshots.opening import KINDS, Parts
from support.clock import FakeClock
from support.repository_contract import RepositoryContract
from support.snapshots import open_parts


@pytest.fixture
async def other(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Parts]:
    store = DirectoryStore(tmp_path / "store", node="node-b", kinds=KINDS)
    async with open_parts(store, tmp_path / "local-b", clock, node="node-b") as parts:
        yield parts


class TestPosixFs(RepositoryContract):
    pass
