"""Real machines end in every way, and the cause is named."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from agentenv.base import aio
from agentenv.vmm.base import EndCause
from support.laboratory import Laboratory, wait_for_console

pytestmark = pytest.mark.vm


@pytest.mark.parametrize(
    "mode, cause, detail",
    [
        ("poweroff", EndCause.GUEST_SHUTDOWN, "powered off"),
        ("reboot", EndCause.GUEST_REBOOT, "rebooted"),
        ("panic", EndCause.GUEST_PANIC, "Attempted to kill init"),
        ("fatal", EndCause.GUEST_PANIC, "no root disk"),
    ],
)
async def test_end_by_the_guest_is_named(laboratory: Laboratory, mode: str, cause: EndCause, detail: str) -> None:
    machine = await laboratory.start(mode)

    end = await asyncio.shield(machine.ended)

    assert end.cause is cause
    assert detail in end.detail
    assert "test-init: ready" in machine.console_tail()


async def test_kill_is_ours_and_can_be_repeated(laboratory: Laboratory) -> None:
    machine = await laboratory.start("idle")

    ends = await asyncio.gather(machine.kill(), machine.kill())

    assert {end.cause for end in [*ends, await machine.kill()]} == {EndCause.KILLED_BY_US}
    assert not Path(f"/proc/{machine.handle.process.pid}").exists(), "not even a zombie is left"
    assert sorted(entry.name for entry in machine.handle.directory.rglob("*")) == [
        "console.log",
        "lineage.json",
        "monitor",
    ]


@pytest.mark.parametrize(
    "number, cause", [(signal.SIGKILL, EndCause.VMM_KILLED), (signal.SIGABRT, EndCause.VMM_FAILED)]
)
async def test_end_by_a_signal_from_elsewhere_is_named(
    laboratory: Laboratory, number: signal.Signals, cause: EndCause
) -> None:
    machine = await laboratory.start("idle")

    os.kill(machine.handle.process.pid, number)
    end = await asyncio.shield(machine.ended)

    assert end.cause is cause
    assert number.name in end.detail


async def test_polite_signal_from_elsewhere_is_named(laboratory: Laboratory) -> None:
    machine = await laboratory.start("idle")

    os.kill(machine.handle.process.pid, signal.SIGTERM)
    end = await asyncio.shield(machine.ended)

    assert end.cause is EndCause.VMM_KILLED
    assert f"terminating on signal 15 from pid {os.getpid()}" in end.detail


async def test_paused_machine_says_nothing_until_it_is_resumed(laboratory: Laboratory) -> None:
    machine = await laboratory.start("idle")
    await wait_for_console(machine, "tick 1")

    await machine.pause()
    before = machine.console_tail()
    # The guest would say something four times in a second.
    waited = await aio.unless(wait_for_console(machine, _next_tick(before)), _in_one_second())
    await machine.resume()

    assert waited is None
    assert _next_tick(before) in await wait_for_console(machine, _next_tick(before))


def _next_tick(tail: str) -> str:
    return f"tick {int(tail.rsplit('tick ', 1)[1].split(maxsplit=1)[0]) + 2}\n"


def _in_one_second() -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_later(1, later.set_result, None)
    return later
