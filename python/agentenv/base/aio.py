"""Tasks with an owner: supervised loops, keyed operations that outlive their callers, bounded fan-out.

The only module that may start a bare task.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from agentenv.base import log, metrics
from agentenv.base.clock import Clock, SystemClock
from agentenv.base.errors import Conflict

_T = TypeVar("_T")
_Other = TypeVar("_Other")
_Item = TypeVar("_Item")
_log = log.get("base")
_loop_seconds = metrics.histogram("aenv_base_loop_seconds", "Duration of one turn of a supervised loop.", ("loop",))
_loop_failures = metrics.counter("aenv_base_loop_failures", "Turns of a supervised loop that raised.", ("loop",))


class Supervisor:
    """Owns background tasks: an error in one is logged and never ends another; `stop` leaves none behind."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` in the background; an exception is logged as `task_failed`."""
        if self._stopping:
            work.close()
            raise RuntimeError(f"cannot start {name}: the supervisor is stopping")
        task = asyncio.create_task(self._guard(name, work), name=name)  # noqa: TID251 - this is the one place
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step never enters `_guard`, so nobody else would end `work`.
        task.add_done_callback(lambda _: work.close())
        return task

    def every(self, name: str, seconds: float, turn: Callable[[], Awaitable[object]]) -> asyncio.Task[Any]:
        """Call `turn` about every `seconds` (with jitter) until stopped; a failed turn is logged and the next comes."""
        return self.start(name, self._repeat(name, seconds, turn))

    async def _repeat(self, name: str, seconds: float, turn: Callable[[], Awaitable[object]]) -> None:
        while True:
            begin = self._clock.monotonic()
            try:
                await turn()
            except Exception:  # noqa: BLE001 - a loop is a door: the next turn must come
                _loop_failures.labels(loop=name).inc()
                _log.exception("loop_turn_failed", loop=name)
            _loop_seconds.labels(loop=name).observe(self._clock.monotonic() - begin)
            await self._clock.sleep(seconds * random.uniform(0.9, 1.1))  # noqa: S311 - jitter, not a secret

    async def _guard(self, name: str, work: Coroutine[Any, Any, _T]) -> _T | None:
        try:
            return await work
        except Exception:  # noqa: BLE001 - nobody awaits this task: the log is the only witness
            _log.exception("task_failed", task=name)
            return None

    async def stop(self) -> None:
        """Cancel everything and wait until it has ended."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Interrupted(Conflict):
    """The work that a caller waited for was ended by a request that goes first."""

    code = "interrupted"


class Operations(Generic[_T]):
    """Work on a keyed thing that outlives the caller who asked for it.

    Invariant: at most one operation runs per key. An equal request joins the running one; a caller that
    goes away stops waiting, and the work goes on.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], asyncio.Task[_T]] = {}

    def find(self, key: str, verb: str) -> asyncio.Task[_T] | None:
        """Return the running operation `verb` on `key`, if there is one."""
        return self._running.get((key, verb))

    async def run(self, key: str, verb: str, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run `work`, or join the same verb already under way on `key`, and return its result."""
        task = self._running.get((key, verb))
        if task is None:
            task = asyncio.create_task(work(), name=f"{verb}:{key}")  # noqa: TID251 - this is the one place
            self._running[key, verb] = task
            task.add_done_callback(lambda done: self._forget(key, verb, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() and current is not None and not current.cancelling():
                raise Interrupted(f"{verb} of '{key}' was ended by another request") from None
            raise

    def _forget(self, key: str, verb: str, task: asyncio.Task[_T]) -> None:
        del self._running[key, verb]
        if not task.cancelled():
            task.exception()  # a caller that went away never reads it; reading here keeps asyncio from complaining

    async def cancel(self, key: str, verb: str) -> None:
        """Cancel an operation and wait until it has ended; nothing happens when it does not run."""
        task = self._running.get((key, verb))
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def wait(self, key: str, verb: str) -> None:
        """Wait until an operation has ended, however it ends; return at once when it does not run."""
        task = self._running.get((key, verb))
        if task is not None:
            await asyncio.wait((task,))

    async def cancel_all(self) -> None:
        """Cancel every operation and wait until all have ended."""
        for task in self._running.values():
            task.cancel()
        await self.drain()

    async def drain(self) -> None:
        """Wait until no operation runs any more."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)


async def for_each(
    items: Iterable[_Item], work: Callable[[_Item], Awaitable[object]], *, at_once: int
) -> list[tuple[_Item, Exception]]:
    """Run `work` on every item, `at_once` in parallel, and return the items that failed with their errors."""
    gate = asyncio.Semaphore(at_once)
    failed: list[tuple[_Item, Exception]] = []

    async def one(item: _Item) -> None:
        async with gate:
            try:
                await work(item)
            except Exception as error:  # noqa: BLE001 - one bad item must not stop the rest
                failed.append((item, error))

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
    return failed


class BlockingPool:
    """A named, bounded set of threads for calls that block longer than a millisecond."""

    def __init__(self, name: str, threads: int) -> None:
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    async def run(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run `work(*arguments)` in a thread. Cancelling the caller does not stop the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    async def run_stoppable(self, work: Callable[[], _T], stop: Callable[[], None]) -> _T:
        """Run `work()` in a thread; for a caller that is cancelled, `stop()` asks it to end soon.

        A cancelled caller goes on only when the thread has ended, so that what it undoes is not still being done.
        """
        submitted = self._executor.submit(work)
        ended = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            stop()
            # What waits for a thread is taken back at once.
            if not submitted.cancel():
                with contextlib.suppress(Exception):
                    await _outlast(ended)
            raise

    def close(self) -> None:
        """End the threads when what they do is done."""
        self._executor.shutdown(wait=True)


async def run_in_new_thread(name: str, work: Callable[[], _T]) -> _T:
    """Run `work()` in a thread that ends with it: for work that changes its thread, such as entering a namespace.

    A cancelled caller goes on only when the thread has ended, so that what it undoes is not still being done.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_T] = loop.create_future()

    def deliver(outcome: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if ended.done() else outcome())

    def body() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, not to the thread
            failure = error
            deliver(lambda: ended.set_exception(failure))
        else:
            deliver(lambda: ended.set_result(result))

    threading.Thread(target=body, name=name, daemon=True).start()
    return await _outlast(ended)


@contextlib.asynccontextmanager
async def bounded_cleanup(seconds: float) -> AsyncIterator[None]:
    """Give a cleanup `seconds` to end; then go on without it and say so, because the next one must run too."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        _log.error("cleanup_timed_out", seconds=seconds)


async def finish(work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` to its end however often the caller is cancelled; the cancellation is raised afterwards."""
    return await _outlast(asyncio.create_task(work))  # noqa: TID251 - this is the one place


async def _outlast(work: asyncio.Future[_T]) -> _T:
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return work.result()


async def together(left: Coroutine[Any, Any, _T], right: Coroutine[Any, Any, _Other]) -> tuple[_T, _Other]:
    """Run both side by side. An error in one cancels the other and is raised, alone, once both have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(left), group.create_task(right)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return tasks[0].result(), tasks[1].result()


async def unless(work: Coroutine[Any, Any, _T], end: asyncio.Future[Any]) -> tuple[_T] | None:
    """Return the result of `work` in a tuple, or None when `end` came first; only `work` is ever cancelled."""
    task = asyncio.create_task(work)  # noqa: TID251 - this is the one place
    try:
        await asyncio.wait((task, end), return_when=asyncio.FIRST_COMPLETED)
        return (task.result(),) if task.done() else None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def first(*works: Coroutine[Any, Any, object]) -> None:
    """Return when one of `works` has ended; the others are cancelled. Raises what the first to end raised."""
    tasks = [asyncio.create_task(work) for work in works]  # noqa: TID251 - this is the one place
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
