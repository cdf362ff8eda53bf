"""Line A20: debug mode as its users have it, with a daemon on port 49983 of the very same machine."""

import os
import subprocess
import sys

import pytest

from contract import node
from contract.places import Place

pytestmark = [pytest.mark.host, pytest.mark.newest]
line = pytest.mark.line
PYTHON = """
from e2b import Sandbox
sandbox = Sandbox.create()
assert sandbox.is_running()
sandbox.files.write("debug.txt", "from python")
print(sandbox.commands.run("cat debug.txt").stdout)
"""
JAVASCRIPT = """
import { Sandbox } from 'e2b'
const sandbox = await Sandbox.create()
await sandbox.files.write('debug.txt', 'from javascript')
console.log((await sandbox.commands.run('cat debug.txt')).stdout)
"""


def run_inside(place: Place, *command: str) -> str:
    inside = ["ip", "netns", "exec", place.namespace, *command]
    environment = os.environ | {"E2B_DEBUG": "true", "PATH": node.PATH}
    finished = subprocess.run(
        inside, env=environment, cwd=node.DIRECTORY, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    return finished.stdout.strip()


@line("A20")
def test_python_needs_nothing_but_the_daemon(lone: Place) -> None:
    assert run_inside(lone, sys.executable, "-c", PYTHON) == "from python"


@line("A20")
def test_javascript_needs_nothing_but_the_daemon(lone: Place) -> None:
    node.install()
    assert run_inside(lone, "node", "--input-type=module", "-e", JAVASCRIPT) == "from javascript"
