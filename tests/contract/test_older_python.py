"""The Python tests once more, with an older client in front of the newest: clients in the field are not renewed."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract import checklist, clients
from contract.places import MACHINE, Place

REQUIREMENTS = Path(__file__).with_name("older-python.txt")
DIRECTORY = checklist.ROOT / "build/contract/older-python"
SUITES = ("test_commands.py", "test_terminals.py", "test_files.py", "test_watch.py", "test_life.py")


@pytest.fixture(scope="module")
def older_packages() -> Path:
    """Install the older client beside everything else; nothing happens when that was done."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = DIRECTORY / ".installed"
    if not stamp.is_file() or stamp.read_text() != wanted:
        options = ("--quiet", "--disable-pip-version-check", "--upgrade", "--no-deps", "--require-hashes")
        pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(DIRECTORY), "-r", str(REQUIREMENTS)]
        subprocess.run(pip, check=True)
        stamp.write_text(wanted)
    return DIRECTORY


def test_the_same_tests_pass_with_an_older_client(place: Place, older_packages: Path) -> None:
    directory = Path(__file__).parent
    mark = "vm" if place.name == MACHINE else "host"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", mark]
    finished = subprocess.run(
        [*command, *(directory / name for name in SUITES)],
        cwd=checklist.ROOT,
        env=os.environ
        | place.handed_over()
        | clients.environment_of_older()
        | {"PYTHONPATH": f"{older_packages}:{checklist.ROOT / 'python'}"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
