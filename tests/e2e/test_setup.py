"""`aenv setup` from nothing: killed in the middle, run again, and run once more when all is there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server import prepared_daemon, prepared_home

COMMAND = [sys.executable, "-m", "agentenv.main", "setup"]


@pytest.fixture
def home(prepared: None) -> Iterator[Path]:
    path = prepared_home() / "test-setup"
    shutil.rmtree(path, ignore_errors=True)
    yield path
    shutil.rmtree(path)


def environment(home: Path) -> dict[str, str]:
    # The daemon's own build is not what is killed here: cargo keeps its house in order by itself.
    return os.environ | {"AENV_HOME": str(home), "AENV_GUEST__BINARY_PATH": str(prepared_daemon())}


def setup(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--json", *options], env=environment(home), capture_output=True, text=True, timeout=500, check=False
    )


def is_building(home: Path) -> bool:
    """Whether the base image's root file system is being filled."""
    # A walk, because a glob stumbles over what disappears under it.
    walk = os.walk(home / "setup" / "work")
    return any(place.endswith("/usr/bin") and "dpkg" in names for place, _, names in walk)


def mounts_below(home: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {home}/" in line]


def test_a_setup_that_was_killed_is_finished_by_the_next_one(home: Path) -> None:
    missing = setup(home, "--check")
    assert missing.returncode == 1
    assert json.loads(missing.stdout)["ready"] is False
    assert not home.exists()

    with subprocess.Popen(
        COMMAND, env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as first:
        try:
            deadline = time.monotonic() + 240
            while not is_building(home):
                assert first.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            first.send_signal(signal.SIGKILL)

    done = setup(home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert setup(home, "--check").returncode == 0
    assert mounts_below(home) == []
    assert list(home.glob("setup/work/*")) == []
    # The base image is a layer; of the raw disk that it was made from nothing stays.
    assert len(list(home.glob("layers/sha256-*"))) == 1
    assert list(home.glob("images/*/disk-*")) == []

    again = json.loads(setup(home).stdout)
    assert {step["outcome"] for step in again["steps"]} == {"current"}
