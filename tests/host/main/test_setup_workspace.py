import asyncio
from pathlib import Path

import pytest

from agentenv.base import process
from agentenv.main.setup.workspace import open_workspace
from support.clock import FakeClock

pytestmark = pytest.mark.host


async def test_mount_of_a_killed_run_is_taken_off_before_anything_is_removed(tmp_path: Path) -> None:
    victim, point = tmp_path / "victim", tmp_path / "home/setup/work/root/dev"
    victim.mkdir()
    (victim / "precious").touch()
    point.mkdir(parents=True)
    await process.run(["mount", "--bind", victim, point])
    async with open_workspace(tmp_path / "home", FakeClock(), lambda text: None) as work:
        assert list(work.iterdir()) == []
    assert (victim / "precious").exists()
    assert str(point) not in Path("/proc/self/mountinfo").read_text()


async def test_second_run_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    clock, said, entered = FakeClock(), list[str](), list[str]()

    async def second() -> None:
        async with open_workspace(tmp_path, clock, said.append):
            entered.append("second")

    async with asyncio.TaskGroup() as group:
        async with open_workspace(tmp_path, clock, said.append) as work:
            (work / "scratch").touch()
            group.create_task(second())
            await clock.advance(1)
            assert (said, entered) == (["another setup is running; waiting for it"], [])
        await clock.advance(1)
    assert entered == ["second"]
    assert not (tmp_path / "setup/work").exists()
