"""Deadlines: when each sandbox's time is over, on a clock that does not jump."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable

from agentenv.base import aio, log
from agentenv.base.clock import Clock
from agentenv.base.ids import SandboxId

_log = log.get("orchestrator")
_LONGEST_NAP_SECONDS = 3600.0


class Deadlines:
    """Calls `expire` for each sandbox whose deadline has passed, `at_once` side by side, each deadline once."""

    def __init__(self, clock: Clock, *, at_once: int) -> None:
        self._clock = clock
        self._at_once = at_once
        self._due: dict[SandboxId, float] = {}
        # Entries of the heap are not removed when a deadline moves: one that `_due` contradicts is passed over.
        self._heap: list[tuple[float, SandboxId]] = []
        self._moved = asyncio.Event()

    def set(self, sandbox_id: SandboxId, seconds_from_now: float) -> None:
        """Set or move a deadline."""
        due = self._clock.monotonic() + seconds_from_now
        self._due[sandbox_id] = due
        heapq.heappush(self._heap, (due, sandbox_id))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [(due, holder) for holder, due in self._due.items()]
            heapq.heapify(self._heap)
        self._moved.set()

    def clear(self, sandbox_id: SandboxId) -> None:
        """Forget a deadline."""
        self._due.pop(sandbox_id, None)

    async def run(self, supervisor: aio.Supervisor, expire: Callable[[SandboxId], Awaitable[None]]) -> None:
        """Wait for deadlines and call `expire`, for ever."""
        gate = asyncio.Semaphore(self._at_once)
        while True:
            for sandbox_id in self._take_due():
                supervisor.start(f"expire:{sandbox_id}", self._expire(sandbox_id, gate, expire))
            self._moved.clear()
            await aio.first(self._moved.wait(), self._clock.sleep(self._nap_seconds()))

    def _take_due(self) -> list[SandboxId]:
        now = self._clock.monotonic()
        taken = []
        while self._heap and self._heap[0][0] <= now:
            due, sandbox_id = heapq.heappop(self._heap)
            if self._due.get(sandbox_id) == due:
                del self._due[sandbox_id]
                taken.append(sandbox_id)
        return taken

    def _nap_seconds(self) -> float:
        if not self._heap:
            return _LONGEST_NAP_SECONDS
        return min(max(self._heap[0][0] - self._clock.monotonic(), 0.0), _LONGEST_NAP_SECONDS)

    async def _expire(
        self, sandbox_id: SandboxId, gate: asyncio.Semaphore, expire: Callable[[SandboxId], Awaitable[None]]
    ) -> None:
        async with gate:
            if sandbox_id in self._due:
                return  # moved while it waited for its turn
            _log.info("sandbox_expired", sandbox_id=sandbox_id)
            await expire(sandbox_id)
