"""Work in a thread of its own, as the namespaces need it."""

import asyncio
import threading

import pytest

from agentenv.base.aio import Supervisor, run_in_new_thread


async def test_every_job_has_a_thread_that_nothing_else_uses() -> None:
    seen = [await run_in_new_thread("job", threading.current_thread) for _ in range(2)]
    assert seen[0] is not seen[1]
    assert threading.current_thread() not in seen


async def test_an_error_of_the_job_reaches_the_caller() -> None:
    def fail() -> None:
        raise PermissionError("no")

    with pytest.raises(PermissionError, match="no"):
        await run_in_new_thread("job", fail)


async def test_a_cancelled_caller_goes_on_only_when_the_job_has_ended() -> None:
    entered, may_end, events = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def job() -> None:
        loop.call_soon_threadsafe(entered.set)
        may_end.wait(10)
        events.append("job ended")

    async def caller() -> None:
        try:
            await run_in_new_thread("job", job)
        except asyncio.CancelledError:
            events.append("caller went on")
            raise

    tasks = Supervisor()
    task = tasks.start("caller", caller())
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert events == []
    may_end.set()
    await asyncio.wait([task])
    assert events == ["job ended", "caller went on"]
    await tasks.stop()
