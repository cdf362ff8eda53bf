"""The demo that the README promises, as a new user runs it; and that it cleans up after a demo that was killed."""

import os
import signal
import subprocess
import sys
import time

from agentenv.main.demo.demo import demo_settings
from agentenv.main.home import Home
from agentenv.main.settings import Settings
from agentenv.vmm.qemu.processes import find_orphans
from support.server import leaks_of, prepared_home

COMMAND = [sys.executable, "-m", "agentenv.main", "demo"]


def test_the_demo_works_after_one_that_was_killed_and_leaves_nothing(prepared: None) -> None:
    environment = os.environ | {"AENV_HOME": str(prepared_home())}
    home = Home(prepared_home() / "demo")
    with subprocess.Popen(
        [*COMMAND, "--skip-setup"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        deadline = time.monotonic() + 120
        while not find_orphans(home.sandboxes):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)

    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=500, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "no process, namespace, link, mount, nft table or disk" in done.stdout
    assert not home.path.exists()
    assert leaks_of(home, demo_settings(Settings())) == []
