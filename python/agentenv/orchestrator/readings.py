"""The guests' counters over time: a bounded row of readings per running sandbox."""

from collections import deque

from agentenv.base import aio, log
from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.guest.base import GuestMetrics
from agentenv.orchestrator.fleet import Fleet

_log = log.get("orchestrator")
_FRESH_SECONDS = 5
_READS_AT_ONCE = 32


class Readings:
    """Reads each running guest now and then, and at once for a caller when the newest reading is old."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rows: dict[SandboxId, deque[GuestMetrics]] = {}

    async def sample(self) -> None:
        """Read every running guest once, and forget the rows of those that are gone."""
        running = frozenset(self._fleet.live)
        for gone in self._rows.keys() - running:
            del self._rows[gone]
        await aio.for_each(running, self._read, at_once=_READS_AT_ONCE)

    async def between(self, sandbox_id: SandboxId, start: int | None, end: int | None) -> list[GuestMetrics]:
        """Return the readings from `start` to `end` (Unix seconds, inclusive), oldest first."""
        now = int(self._fleet.clock.now().timestamp())
        row = self._rows.get(sandbox_id)
        newest = row[-1].timestamp if row else 0
        if now - newest >= _FRESH_SECONDS and (end is None or end >= now):
            await self._read(sandbox_id)
        return [
            reading
            for reading in self._rows.get(sandbox_id, ())
            if (start is None or reading.timestamp >= start) and (end is None or reading.timestamp <= end)
        ]

    async def _read(self, sandbox_id: SandboxId) -> None:
        live = self._fleet.live.get(sandbox_id)
        record = self._fleet.book.find(sandbox_id)
        if live is None or record is None:
            return
        try:
            reading = await self._fleet.launcher.metrics(live, record.sandbox.envd_token)
        except AgentEnvError as error:
            _log.debug("guest_not_read", sandbox_id=sandbox_id, reason=error.message)
            return
        if sandbox_id in self._fleet.live:
            row = self._rows.setdefault(sandbox_id, deque(maxlen=self._fleet.settings.metrics_readings))
            row.append(reading)
