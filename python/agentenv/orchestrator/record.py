"""What is remembered of a sandbox, in memory and on disk."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from agentenv.base import log
from agentenv.base.errors import Bug
from agentenv.base.ids import SandboxId, SnapshotId
from agentenv.base.records import Records, RecordsUnavailable
from agentenv.orchestrator import record_format
from agentenv.orchestrator.base import ROUTABLE_STATES, ListQuery, Order, PauseFacts, Sandbox, SandboxState
from agentenv.orchestrator.errors import SandboxNotFound
from agentenv.runtime.base import LiveHandle
from agentenv.snapshots.base import BootFacts, FileRecord, LayerRef

_KIND = "sandbox"
_log = log.get("orchestrator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a machine's disk and memory are changes of, bottom first, and the snapshot that this was.

    Without `memory_layers` the machine was booted, and its first capture writes all of its memory.
    """

    disk_layers: tuple[LayerRef, ...] = ()
    memory_layers: tuple[FileRecord, ...] = ()
    parent_id: SnapshotId | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The snapshot that is left of a sandbox when its machine goes, and what kind of pause that would be."""

    snapshot_id: SnapshotId
    facts: PauseFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """One sandbox. `incarnation` grows with every change; a change made from an older reading is refused.

    `generation` counts the machines this sandbox has had. `handle` is there while one runs. `request_digest` is what
    an idempotency key was used for. `boot` is None in records of a program that could not pause.

    `checkpoint` is of its last pause or rollback. `attempt_id` is the snapshot that the verb under way is making.
    """

    sandbox: Sandbox
    timeout_seconds: int
    incarnation: int = 1
    generation: int = 1
    handle: LiveHandle | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    boot: BootFacts | None = None
    basis: Basis = field(default_factory=Basis)
    checkpoint: Checkpoint | None = None
    attempt_id: SnapshotId | None = None

    @property
    def id(self) -> SandboxId:
        """The sandbox's id."""
        return self.sandbox.id

    @property
    def state(self) -> SandboxState:
        """Where the sandbox is in its life."""
        return self.sandbox.state

    def at(self, state: SandboxState, **changes: Any) -> "SandboxRecord":
        """Return this record with the sandbox in `state`, and with `changes` of the record itself."""
        return replace(self, sandbox=replace(changes.pop("sandbox", self.sandbox), state=state), **changes)

    def paused(self, checkpoint: Checkpoint) -> "SandboxRecord":
        """Return this record of a sandbox of which a snapshot is left and nothing else."""
        return self.at(
            SandboxState.PAUSED,
            sandbox=replace(self.sandbox, pause=checkpoint.facts),
            handle=None,
            basis=Basis(parent_id=self.basis.parent_id),
            checkpoint=checkpoint,
            attempt_id=None,
        )


_ADAPTER = TypeAdapter(SandboxRecord)


class Book:
    """All sandboxes of this node, and their durable copies.

    Invariant: a record on disk is of a sandbox that ran or was paused when it was written, or it names in its state
    the verb that was under way. One that is being made or resumed is not there, or there as paused: whatever a killed
    server leaves of the attempt belongs to nobody and is collected.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._by_id: dict[SandboxId, SandboxRecord] = {}

    async def read(self) -> list[SandboxRecord]:
        """Return the durable records of an earlier process; one that cannot be understood is logged and left alone."""
        found = []
        for key, document in await self._records.all(_KIND):
            try:
                found.append(_ADAPTER.validate_python(record_format.upgrade(document)))
            except (ValueError, KeyError, TypeError) as error:
                _log.error("record_unreadable", sandbox_id=key, reason=type(error).__name__)
        return found

    def get(self, sandbox_id: SandboxId) -> SandboxRecord:
        """Return a record. Raises `SandboxNotFound`."""
        record = self._by_id.get(sandbox_id)
        if record is None:
            raise SandboxNotFound(sandbox_id)
        return record

    def find(self, sandbox_id: SandboxId) -> SandboxRecord | None:
        """Return a record, or None."""
        return self._by_id.get(sandbox_id)

    def all(self) -> list[SandboxRecord]:
        """Return every record, in no order."""
        return list(self._by_id.values())

    def add(self, record: SandboxRecord) -> None:
        """Take in a new record, in memory only."""
        if record.id in self._by_id:
            raise Bug(f"sandbox {record.id} is in the book already")
        self._by_id[record.id] = record

    def change(self, seen: SandboxRecord, **changes: Any) -> SandboxRecord:
        """Replace the record that was `seen`, in memory only. Raises `SandboxNotFound` when it has changed since."""
        current = self.get(seen.id)
        if current.incarnation != seen.incarnation:
            raise SandboxNotFound(seen.id)
        return self._put(replace(current, **changes))

    def change_sandbox(self, seen: SandboxRecord, **changes: Any) -> SandboxRecord:
        """Replace facts of the sandbox in the record that was `seen`, in memory only."""
        return self.change(seen, sandbox=replace(seen.sandbox, **changes))

    def put(self, record: SandboxRecord) -> SandboxRecord:
        """Replace the record that this one was made from, in memory only. Raises `SandboxNotFound` as `change`."""
        if self.get(record.id).incarnation != record.incarnation:
            raise SandboxNotFound(record.id)
        return self._put(record)

    async def commit(self, sandbox_id: SandboxId, change: Callable[[SandboxRecord], SandboxRecord]) -> SandboxRecord:
        """Change a record on disk first, then in memory; what else changed meanwhile is kept.

        Nobody sees the change before it is durable. `change` may be called more than once.
        """
        while True:
            seen = self.get(sandbox_id)
            changed = change(seen)
            await self.save(changed)
            if self.get(sandbox_id) is seen:
                return self._put(changed)

    def _put(self, record: SandboxRecord) -> SandboxRecord:
        record = replace(record, incarnation=record.incarnation + 1)
        self._by_id[record.id] = record
        return record

    def remove(self, sandbox_id: SandboxId) -> None:
        """Forget a record, in memory only."""
        self._by_id.pop(sandbox_id, None)

    async def save(self, record: SandboxRecord) -> None:
        """Make a record durable."""
        await self._records.put(_KIND, record.id, record_format.stamp(_ADAPTER.dump_python(record, mode="json")))

    async def save_or_log(self, record: SandboxRecord) -> None:
        """Make a record durable where a failure changes nothing: the next start would come to the same."""
        try:
            await self.save(record)
        except RecordsUnavailable as error:
            _log.error("record_not_saved", sandbox_id=record.id, reason=error.message)

    async def erase(self, sandbox_id: SandboxId) -> None:
        """Make a record's absence durable.

        Where that is not possible, on a full disk for one, the next start does it: it finds a record whose machine
        has ended. Whoever ends the machine need not care.
        """
        try:
            await self._records.delete(_KIND, sandbox_id)
        except RecordsUnavailable as error:
            _log.error("record_not_erased", sandbox_id=sandbox_id, reason=error.message)


def matches(sandbox: Sandbox, query: ListQuery) -> bool:
    """Return whether a sandbox belongs in the answer to a query."""
    return (
        sandbox.state in query.states
        and (query.template is None or query.template in {sandbox.template_id, sandbox.template_name})
        and (query.started_after is None or sandbox.started_at >= query.started_after)
        and all(sandbox.metadata.get(key) == value for key, value in query.metadata.items())
    )


def in_order(sandboxes: list[Sandbox], order: Order) -> list[Sandbox]:
    """Return sandboxes by start time, ties by id."""
    return sorted(sandboxes, key=_sort_key, reverse=order is Order.DESCENDING)


def _sort_key(sandbox: Sandbox) -> tuple[datetime, str]:
    return sandbox.started_at, sandbox.id


def is_routable(record: SandboxRecord) -> bool:
    """Return whether traffic may reach this sandbox now."""
    return record.state in ROUTABLE_STATES
