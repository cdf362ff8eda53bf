"""What is remembered of a sandbox, in memory and on disk."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agentenv.base import log
from agentenv.base.errors import Bug
from agentenv.base.ids import SandboxId
from agentenv.base.records import Records, RecordsUnavailable
from agentenv.orchestrator.base import ListQuery, Order, Sandbox, SandboxState
from agentenv.orchestrator.errors import SandboxNotFound
from agentenv.runtime.base import LiveHandle

_KIND = "sandbox"
_log = log.get("orchestrator")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """One sandbox. `incarnation` grows with every change; a change made from an older reading is refused.

    `generation` counts the machines this sandbox has had. `handle` is there while one runs.
    `request_digest` is what an idempotency key was used for.
    """

    sandbox: Sandbox
    incarnation: int = 1
    generation: int = 1
    handle: LiveHandle | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None


_ADAPTER = TypeAdapter(SandboxRecord)


class Book:
    """All sandboxes of this node, and their durable copies.

    Invariant: what is on disk is a sandbox that ran when it was written. One that is being made or ended is not
    there, so that whatever a killed server leaves of it belongs to nobody and is collected.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._by_id: dict[SandboxId, SandboxRecord] = {}

    async def read(self) -> list[SandboxRecord]:
        """Return the durable records of an earlier process; one that cannot be understood is logged and left alone."""
        found = []
        for key, document in await self._records.all(_KIND):
            try:
                found.append(_ADAPTER.validate_python(document))
            except ValidationError as error:
                _log.error("record_unreadable", sandbox_id=key, errors=error.error_count())
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
        if record.sandbox.id in self._by_id:
            raise Bug(f"sandbox {record.sandbox.id} is in the book already")
        self._by_id[record.sandbox.id] = record

    def change(self, seen: SandboxRecord, **changes: Any) -> SandboxRecord:
        """Replace the record that was `seen`, in memory only. Raises `SandboxNotFound` when it has changed since."""
        current = self.get(seen.sandbox.id)
        if current.incarnation != seen.incarnation:
            raise SandboxNotFound(seen.sandbox.id)
        changed = replace(current, incarnation=current.incarnation + 1, **changes)
        self._by_id[seen.sandbox.id] = changed
        return changed

    def change_sandbox(self, seen: SandboxRecord, **changes: Any) -> SandboxRecord:
        """Replace facts of the sandbox in the record that was `seen`, in memory only."""
        return self.change(seen, sandbox=replace(seen.sandbox, **changes))

    def remove(self, sandbox_id: SandboxId) -> None:
        """Forget a record, in memory only."""
        self._by_id.pop(sandbox_id, None)

    async def save(self, record: SandboxRecord) -> None:
        """Make a record durable."""
        await self._records.put(_KIND, record.sandbox.id, _ADAPTER.dump_python(record, mode="json"))

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
    return record.sandbox.state is SandboxState.RUNNING
