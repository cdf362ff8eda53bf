"""What tests with real machines boot from, and where they run. `aenv setup`, which `make test` runs, prepares it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentenv.guest import provision
from support.server import prepared_home


@pytest.fixture(scope="session")
def kernel() -> Path:
    """The guest kernel that setup prepared."""
    return provision.find_boot_files(prepared_home()).kernel


@pytest.fixture(scope="session")
def shared_directory() -> Iterator[Path]:
    """A short path that unprivileged monitors can read; pytest's own directories are closed to them."""
    path = Path(tempfile.mkdtemp(prefix="aenv-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
