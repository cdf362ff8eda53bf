"""Tasks with an owner: what outlives a caller, what never does, and what one failure may stop."""

import asyncio

import pytest

from agentenv.base import aio
from agentenv.base.aio import Interrupted, Operations, Supervisor
from support.clock import FakeClock, settle


async def test_an_equal_operation_joins_the_running_one() -> None:
    operations: Operations[int] = Operations()
    gate, runs = asyncio.Event(), []

    async def work() -> int:
        runs.append(1)
        await gate.wait()
        return 7

    both = [asyncio.ensure_future(operations.run("key", "verb", work)) for _ in range(2)]
    await settle()
    gate.set()

    assert await asyncio.gather(*both) == [7, 7]
    assert len(runs) == 1
    assert operations.find("key", "verb") is None


async def test_an_operation_outlives_its_caller() -> None:
    operations: Operations[None] = Operations()
    gate, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.set()

    caller = asyncio.ensure_future(operations.run("key", "verb", work))
    await settle()
    caller.cancel()
    await settle()
    assert caller.cancelled()

    gate.set()
    await operations.drain()
    assert done.is_set()


async def test_a_cancelled_operation_is_an_error_for_its_caller_not_a_cancellation() -> None:
    operations: Operations[None] = Operations()
    caller = asyncio.ensure_future(operations.run("key", "verb", asyncio.Event().wait))  # type: ignore[arg-type]
    await settle()

    await operations.cancel("key", "verb")

    with pytest.raises(Interrupted, match="verb of 'key'"):
        await caller


async def test_a_failing_turn_does_not_end_a_loop() -> None:
    clock = FakeClock()
    supervisor = Supervisor(clock)
    turns = []

    async def turn() -> None:
        turns.append(1)
        raise ValueError("this turn fails")

    supervisor.every("failing", 1, turn)
    await clock.advance(0)
    await clock.advance(1.2)
    await clock.advance(1.2)
    await supervisor.stop()

    assert len(turns) == 3


async def test_a_stopped_supervisor_leaves_no_task_and_takes_none() -> None:
    supervisor = Supervisor()
    task = supervisor.start("forever", asyncio.Event().wait())
    await supervisor.stop()

    assert task.cancelled()
    with pytest.raises(RuntimeError, match="stopping"):
        supervisor.start("late", asyncio.Event().wait())


async def test_for_each_is_bounded_and_collects_failures() -> None:
    at_once, most = 0, 0

    async def work(item: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        if item == 3:
            raise ValueError("three")

    failed = await aio.for_each(range(10), work, at_once=4)

    assert [(item, str(error)) for item, error in failed] == [(3, "three")]
    assert most == 4


async def test_unless_returns_the_work_or_nothing_when_the_end_came_first() -> None:
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert await aio.unless(asyncio.sleep(0, "done"), end) == ("done",)

    waiting = asyncio.ensure_future(aio.unless(asyncio.Event().wait(), end))
    await settle()
    end.set_result(None)
    assert await waiting is None


async def test_finish_runs_to_its_end_before_the_cancellation_is_seen() -> None:
    gate, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.set()

    caller = asyncio.ensure_future(aio.finish(work()))
    await settle()
    for _ in range(3):
        caller.cancel()
        await settle()
        assert not caller.done()

    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done.is_set()


async def test_first_cancels_the_others_and_raises_what_the_first_raised() -> None:
    ended = asyncio.Event()

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def failing() -> None:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await aio.first(other(), failing())
    assert ended.is_set()


async def test_a_cleanup_that_hangs_is_given_up() -> None:
    async with aio.bounded_cleanup(0.001):
        await asyncio.Event().wait()
