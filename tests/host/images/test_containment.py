import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from agentenv.base import process

pytestmark = pytest.mark.host

# A process that starts a contained tree, as setup does, and is then killed without a chance to clean up.
_PARENT = """
import asyncio, sys
from agentenv.base import process
from agentenv.images import debian
mounting = "mount -t tmpfs none " + sys.argv[1] + " && echo $$ > " + sys.argv[2] + " && sleep 1000 & wait"
asyncio.run(process.run([*debian.containment(), "sh", "-c", mounting], timeout_seconds=1000))
"""


def _descendants(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [below for child in children for below in _descendants(child)]


async def test_killed_build_leaves_no_process_and_no_mount(tmp_path: Path) -> None:
    point, mark, script = tmp_path / "mounted", tmp_path / "mark", tmp_path / "parent.py"
    point.mkdir()
    script.write_text(_PARENT)
    pid = os.spawnve(
        os.P_NOWAIT, sys.executable, [sys.executable, str(script), str(point), str(mark)], dict(os.environ)
    )
    async with asyncio.timeout(30):
        while not mark.exists():
            await asyncio.sleep(0.01)
    identities = [process.identify(below) for below in _descendants(pid)]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    async with asyncio.timeout(10):
        for identity in identities:
            assert identity is not None
            await identity.wait_ended()
    assert len(identities) >= 3
    assert str(point) not in Path("/proc/self/mountinfo").read_text()
