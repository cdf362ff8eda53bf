"""A repository in a directory, and a clock that stands still."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentenv.objects.directory import DirectoryStore
from agentenv.snapshots.opening import KINDS, Parts
from support.clock import FakeClock
from support.snapshots import open_parts


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory, because hundreds of repositories are made here and every one syncs its files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def parts(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Parts]:
    store = DirectoryStore(tmp_path / "store", node="node-a", kinds=KINDS)
    async with open_parts(store, tmp_path / "local", clock) as parts:
        yield parts
