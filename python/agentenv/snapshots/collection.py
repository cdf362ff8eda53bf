"""Removes files that nothing needs: unused for the grace time, set aside for the grace time again, then gone.

Any node may collect, several at once too; each keeps its own times and trusts no other clock.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from agentenv.base import log, metrics
from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.objects.base import ObjectStore
from agentenv.snapshots.access import Access
from agentenv.snapshots.base import CollectionReport, FileRecord
from agentenv.snapshots.catalogue import MANIFESTS, Catalogue
from agentenv.snapshots.index import Index
from agentenv.snapshots.leases import Leases
from agentenv.snapshots.ledger import Ledger
from agentenv.snapshots.refresh import Refresh

_UNUSED = "unused"
_ASIDE = "aside"
_CHUNK = 500
_removed_bytes = metrics.counter("aenv_snapshots_removed_bytes", "Bytes of files that collections have removed.")
_log = log.get("snapshots")


class Collector:
    """Invariant: when a file has been set aside, manifests and leases are looked at once more, and it may come back."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        catalogue: Catalogue,
        refresh: Refresh,
        leases: Leases,
        access: Access,
        clock: Clock,
        grace_seconds: float,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._refresh = refresh
        self._leases = leases
        self._access = access
        self._clock = clock
        self._grace_seconds = grace_seconds

    async def collect(self, *, dry_run: bool = False) -> CollectionReport:
        """Do one round, or tell what it would do. Stops when it cannot know everything that is needed."""
        await self._refresh.run()
        leased = await self._leases.all()
        restored, removed = await self._go_through_aside(leased, dry_run=dry_run)
        due, waiting, kept = await self._find_unused(leased, dry_run=dry_run)
        back: list[FileRecord] = []
        if not dry_run:
            due, back = await self._set_aside(due)
            await self._forget_deleted()
            await self._store.trim(await self._leases.own())
        report = CollectionReport(
            set_aside=tuple(record for record in due if record not in back),
            restored=tuple(restored + back),
            removed=tuple(removed),
            waiting=tuple(waiting),
            kept_by_leases=tuple(kept),
        )
        if not dry_run and (report.set_aside or report.restored or report.removed):
            _tell(report)
        return report

    async def _go_through_aside(
        self, leased: frozenset[str], *, dry_run: bool
    ) -> tuple[list[FileRecord], list[FileRecord]]:
        aside = await self._store.aside()
        since = await self._times(_ASIDE, aside, dry_run=dry_run)
        oldest = self._clock.now().timestamp() - self._grace_seconds
        needed = await self._find_needed(aside) | leased
        restored = [record for record in _records(aside) if record.digest in needed]
        removed = [
            record for record in _records(aside) if record.digest not in needed and since[record.digest] <= oldest
        ]
        if not dry_run:
            await _each(restored, self._store.restore)
            removed = await _each(removed, self._store.purge)
            _removed_bytes.inc(sum(record.size_bytes for record in removed))
            await self._access.ledger(Ledger.forget_merged, [record.digest for record in removed])
        return restored, removed

    async def _find_unused(
        self, leased: frozenset[str], *, dry_run: bool
    ) -> tuple[list[FileRecord], list[FileRecord], list[FileRecord]]:
        blobs = await self._store.blobs()
        needed = await self._find_needed(blobs)
        unneeded = [record for record in _records(blobs) if record.digest not in needed]
        kept = [record for record in unneeded if record.digest in leased]
        unused = {record.digest: record for record in unneeded if record.digest not in leased}
        since = await self._times(_UNUSED, unused, dry_run=dry_run)
        oldest = self._clock.now().timestamp() - self._grace_seconds
        due = [record for record in unused.values() if since[record.digest] <= oldest]
        return due, [record for record in unused.values() if record not in due], kept

    async def _times(self, topic: str, keys: Iterable[str], *, dry_run: bool) -> dict[str, float]:
        now = self._clock.now().timestamp()
        if dry_run:
            known = await self._access.ledger(Ledger.marked, topic)
            return {key: known.get(key, now) for key in keys}
        return await self._access.ledger(Ledger.mark, topic, tuple(keys), now)

    async def _set_aside(self, due: list[FileRecord]) -> tuple[list[FileRecord], list[FileRecord]]:
        """Take files away; then look again, and put back what somebody has begun to need. Return both."""
        taken = await _each(due, self._store.set_aside)
        if not taken:
            return [], []
        await self._refresh.run()
        needed = await self._find_needed([record.digest for record in taken]) | await self._leases.all()
        back = [record for record in taken if record.digest in needed]
        await _each(back, self._store.restore)
        await self._times(_ASIDE, await self._store.aside(), dry_run=False)
        return taken, back

    async def _forget_deleted(self) -> None:
        """Remove what a deletion leaves behind: the cell of the manifest, and names that lead nowhere."""
        oldest = self._clock.now().timestamp() - self._grace_seconds
        for snapshot_id in await self._access.change(Index.tombstones, oldest):
            await self._store.forget_cell(MANIFESTS, snapshot_id)
        for name in await self._access.change(Index.dangling_names):
            await self._catalogue.drop_dangling(name)

    async def _find_needed(self, digests: Iterable[str]) -> set[str]:
        needed: set[str] = set()
        for chunk in _chunks(list(digests)):
            needed |= await self._access.change(Index.needed, chunk)
        return needed


async def _each(records: list[FileRecord], work: Callable[[str], Awaitable[object]]) -> list[FileRecord]:
    """Do something with every file, and return those with which it could be done; the next round tries the others."""
    done = []
    for record in records:
        try:
            await work(record.digest)
        except AgentEnvError as error:
            _log.error("file_not_collected", digest=record.digest, reason=error.message)
        else:
            done.append(record)
    return done


def _records(found: Mapping[str, int]) -> list[FileRecord]:
    return [FileRecord(digest, size) for digest, size in sorted(found.items())]


def _chunks(digests: list[str]) -> Iterator[list[str]]:
    return (digests[start : start + _CHUNK] for start in range(0, len(digests), _CHUNK))


def _tell(report: CollectionReport) -> None:
    _log.info(
        "files_collected",
        set_aside=len(report.set_aside),
        restored=len(report.restored),
        removed=len(report.removed),
        removed_bytes=sum(record.size_bytes for record in report.removed),
    )
