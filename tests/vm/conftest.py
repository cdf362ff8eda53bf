"""What tests with real machines boot from, and where they run. The kernel and initramfs come from the environment."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _from_environment(name: str) -> Path:
    path = Path(os.environ.get(name, "/nonexistent"))
    if not path.is_file():
        pytest.fail(f"{name} must name a file that guests boot from; `make test` sets it")
    return path


@pytest.fixture(scope="session")
def kernel() -> Path:
    """The guest kernel that was provisioned for tests."""
    return _from_environment("AENV_TEST_KERNEL")


@pytest.fixture(scope="session")
def initramfs() -> Path:
    """The initramfs with our daemon that was provisioned for tests."""
    return _from_environment("AENV_TEST_INITRAMFS")


@pytest.fixture(scope="session")
def shared_directory() -> Iterator[Path]:
    """A short path that unprivileged monitors can read; pytest's own directories are closed to them."""
    path = Path(tempfile.mkdtemp(prefix="aenv-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
