"""A guest that floods its console costs what the settings say and no more."""

import time

import pytest

from agentenv.base.clock import SystemClock
from agentenv.vmm.base import EndCause
from agentenv.vmm.settings import VmmSettings
from support.laboratory import Laboratory, wait_until

pytestmark = pytest.mark.vm
_KIB = 1024


async def test_flood_is_bounded_on_disk_and_in_our_time_and_leaves_us_in_control(laboratory: Laboratory) -> None:
    driver = await laboratory.driver(VmmSettings(console_limit_kib=16, console_rate_kib_per_second=16))
    machine = await driver.boot(laboratory.describe("spam"))
    newest, older = (machine.handle.directory / name for name in ("console.log", "console.log.old"))
    await wait_until(lambda: str(older.exists()), lambda found: found == "True")

    spent_before = time.process_time()
    await SystemClock().sleep(2)
    spent = time.process_time() - spent_before
    await machine.pause()
    end = await machine.kill()

    assert spent < 0.2
    assert newest.stat().st_size <= 8 * _KIB
    assert older.stat().st_size <= 8 * _KIB
    assert machine.console_tail(1000).count("spam") > 150, "the end of the flood is kept"
    assert end.cause is EndCause.KILLED_BY_US
