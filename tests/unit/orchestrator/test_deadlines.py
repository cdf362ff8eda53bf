"""Deadlines: each once, moved ones at their new time, and a heap that does not grow with refreshes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from agentenv.base.aio import Supervisor
from agentenv.base.ids import SandboxId
from agentenv.orchestrator.deadlines import Deadlines
from support.clock import FakeClock

ONE, TWO = SandboxId("one"), SandboxId("two")


class Expired:
    """Deadlines that run, and the ids they called for."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.deadlines = Deadlines(self.clock, at_once=1)
        self.ids: list[SandboxId] = []

    async def note(self, sandbox_id: SandboxId) -> None:
        self.ids.append(sandbox_id)


@pytest.fixture
async def expired() -> AsyncIterator[Expired]:
    made, supervisor = Expired(), Supervisor()
    supervisor.start("deadlines", made.deadlines.run(supervisor, made.note))
    yield made
    await supervisor.stop()


async def test_each_deadline_is_called_once_in_order(expired: Expired) -> None:
    expired.deadlines.set(TWO, 2)
    expired.deadlines.set(ONE, 1)

    await expired.clock.advance(1)
    assert expired.ids == [ONE]
    await expired.clock.advance(10)
    assert expired.ids == [ONE, TWO]


async def test_a_deadline_that_moved_is_called_at_its_new_time(expired: Expired) -> None:
    expired.deadlines.set(ONE, 1)
    expired.deadlines.set(ONE, 5)
    expired.deadlines.set(TWO, 5)
    expired.deadlines.set(TWO, 1)

    await expired.clock.advance(2)
    assert expired.ids == [TWO]
    await expired.clock.advance(4)
    assert expired.ids == [TWO, ONE]


async def test_a_deadline_that_was_cleared_is_not_called(expired: Expired) -> None:
    expired.deadlines.set(ONE, 1)
    expired.deadlines.clear(ONE)

    await expired.clock.advance(2)
    assert expired.ids == []


def test_refreshes_do_not_fill_the_heap() -> None:
    async def refresh_often() -> int:
        deadlines = Deadlines(FakeClock(), at_once=1)
        for _ in range(10_000):
            deadlines.set(ONE, 86_400)
        return len(deadlines._heap)

    assert asyncio.run(refresh_often()) < 100
