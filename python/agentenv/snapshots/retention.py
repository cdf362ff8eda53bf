"""Deletes snapshots that nobody named or built upon, when they are old enough. Paused sandboxes are not ours."""

from datetime import timedelta

from agentenv.base import log
from agentenv.base.clock import Clock
from agentenv.snapshots.access import Access
from agentenv.snapshots.errors import SnapshotNotFound
from agentenv.snapshots.index import Index
from agentenv.snapshots.repository import SharedRepository

_AT_ONCE = 100
_log = log.get("snapshots")


class Retention:
    """With a retention of 0 there is nothing to do, ever."""

    def __init__(self, repository: SharedRepository, access: Access, clock: Clock, retention_seconds: float) -> None:
        self._repository = repository
        self._access = access
        self._clock = clock
        self._retention_seconds = retention_seconds

    async def turn(self) -> int:
        """Delete some of what is due, the oldest first; return how many."""
        if not self._retention_seconds:
            return 0
        before = self._clock.now() - timedelta(seconds=self._retention_seconds)
        due = await self._access.change(Index.unused_since, before, _AT_ONCE)
        for snapshot_id in due:
            try:
                await self._repository.delete(snapshot_id)
            except SnapshotNotFound:
                continue  # another node was quicker
            _log.info("snapshot_expired", snapshot_id=snapshot_id)
        return len(due)
