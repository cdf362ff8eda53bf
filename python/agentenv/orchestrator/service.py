"""The façade of the lifecycle: checks a request's words and hands it to its verb. Decisions are `machine`'s."""

import asyncio
import secrets
from datetime import timedelta
from functools import partial
from typing import NoReturn

from agentenv.base import aio, ids
from agentenv.base.errors import Invalid
from agentenv.base.ids import SandboxId
from agentenv.guest.base import GuestMetrics
from agentenv.orchestrator import fleet as fleet_module
from agentenv.orchestrator import recovery
from agentenv.orchestrator.base import (
    PAUSED_STATES,
    RUNNING_STATES,
    Connected,
    CreateRequest,
    ForkedChild,
    ListQuery,
    Route,
    Sandbox,
    SandboxState,
    Template,
)
from agentenv.orchestrator.endings import Endings
from agentenv.orchestrator.errors import (
    IdempotencyUnknown,
    SandboxAsleep,
    SandboxNotFound,
    SandboxNotRoutable,
    VerbRefused,
    WakeTimedOut,
)
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.idempotency import IdempotencyKeys, request_digest
from agentenv.orchestrator.library import Library
from agentenv.orchestrator.machine import Verb
from agentenv.orchestrator.readings import Readings
from agentenv.orchestrator.record import SandboxRecord, in_order, is_routable, matches
from agentenv.orchestrator.steps import Steps
from agentenv.orchestrator.turns import Turns
from agentenv.orchestrator.verbs import fork as fork_verb
from agentenv.orchestrator.verbs.create import create
from agentenv.orchestrator.verbs.pause import PauseRequest, pause
from agentenv.orchestrator.verbs.resume import ResumeRequest, resume
from agentenv.orchestrator.verbs.rollback import rollback
from agentenv.orchestrator.verbs.snapshot import check_name, snapshot
from agentenv.snapshots.base import Cursor, Page, SnapshotQuery, SnapshotSummary

_WAKING_STATES = frozenset({SandboxState.RESUMING, SandboxState.ROLLING_BACK})
_IMAGES_INTERVAL_SECONDS = 60.0


class Service:
    """Implements `orchestrator.base.Orchestrator` on one node."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._turns = Turns(fleet)
        self._endings = Endings(fleet, self._turns)
        self._library = Library(fleet)
        self._forks: aio.Operations[list[ForkedChild]] = aio.Operations()
        self._keys = IdempotencyKeys()
        self._readings = Readings(fleet)
        fleet.watch = self._endings.watch

    async def start(self, records: list[SandboxRecord]) -> None:
        """Take over what an earlier process left, and begin to watch."""
        fleet = self._fleet
        self._show_gauges()
        await recovery.recover(fleet, records)
        for record in fleet.book.all():
            if record.idempotency_key is not None and record.request_digest is not None:
                self._keys.finish(record.idempotency_key, record.request_digest, record.id)
        fleet.supervisor.start("deadlines", fleet.deadlines.run(fleet.supervisor, self._endings.expire))
        fleet.supervisor.every("guest_metrics", fleet.settings.metrics_interval_seconds, self._readings.sample)
        fleet.supervisor.every("memory_images", _IMAGES_INTERVAL_SECONDS, fleet.launcher.close_unused_images)

    async def stop(self, *, detach: bool) -> frozenset[int]:
        """Pause all sandboxes, or leave them running for the next process.

        Returns the network slots of those that run on; what could not be paused is among them.
        """
        await self._turns.close()
        await self._forks.drain()
        if not detach:
            self._turns.open_for_stop()
            await self._endings.pause_all()
            await self._turns.close()
        return await self._endings.leave_running()

    async def create(self, request: CreateRequest) -> Sandbox:
        """Start a sandbox; see `Orchestrator.create`."""
        if request.timeout_seconds <= 0:
            raise Invalid("timeout: must be at least 1 second")
        self._check_timeout(request.timeout_seconds)
        key, digest = request.idempotency_key, request_digest(request)
        if key is not None and (made := self._keys.begin(key, digest)) is not None:
            return self._made_before(key, made)
        sandbox_id = ids.new_sandbox_id()
        record = await self._turns.create(sandbox_id, lambda steps: self._create(sandbox_id, request, digest, steps))
        return record.sandbox

    async def _create(self, sandbox_id: SandboxId, request: CreateRequest, digest: str, steps: Steps) -> SandboxRecord:
        key = request.idempotency_key
        try:
            record = await create(self._fleet, sandbox_id, request, digest, steps)
        except BaseException:
            if key is not None:
                self._keys.forget(key)
            raise
        if key is not None:
            self._keys.finish(key, digest, sandbox_id)
        return record

    def _check_timeout(self, seconds: int) -> None:
        limit = self._fleet.settings.max_timeout_seconds
        if not 0 <= seconds <= limit:
            raise Invalid(f"timeout: {seconds} is not between 0 and {limit} seconds (orchestrator.max_timeout_seconds)")

    def _made_before(self, key: str, sandbox_id: SandboxId) -> Sandbox:
        record = self._fleet.book.find(sandbox_id)
        if record is None:
            raise IdempotencyUnknown(f"the sandbox that the idempotency key '{key}' made, {sandbox_id}, is gone")
        return record.sandbox

    async def kill(self, sandbox_id: SandboxId) -> None:
        """End a sandbox; see `Orchestrator.kill`."""
        await self._endings.end(sandbox_id, "killed")

    async def pause(self, sandbox_id: SandboxId, *, with_memory: bool = True, needs_guest: bool = False) -> None:
        """Pause a sandbox; see `Orchestrator.pause`."""
        request = PauseRequest(with_memory=with_memory, needs_guest=needs_guest)
        await self._turns.take(sandbox_id, Verb.PAUSE, lambda turn: pause(turn, request), words=request.words)

    async def connect(
        self,
        sandbox_id: SandboxId,
        timeout_seconds: int,
        *,
        with_memory: bool = True,
        auto_pause: bool | None = None,
        must_be_paused: bool = False,
    ) -> Connected:
        """Make sure that a sandbox runs; see `Orchestrator.connect`."""
        self._check_timeout(timeout_seconds)
        request = ResumeRequest(timeout_seconds=timeout_seconds, with_memory=with_memory, auto_pause=auto_pause)
        resumed = await self._resume(sandbox_id, request)
        if resumed is None and must_be_paused:
            raise VerbRefused(sandbox_id, Verb.RESUME, SandboxState.RUNNING)
        await self.refresh(sandbox_id, timeout_seconds)
        return Connected(self._existing(sandbox_id).sandbox, resumed=resumed is not None)

    async def _resume(self, sandbox_id: SandboxId, request: ResumeRequest) -> SandboxRecord | None:
        return await self._turns.take(sandbox_id, Verb.RESUME, lambda turn: resume(turn, request), words=request.words)

    async def snapshot(self, sandbox_id: SandboxId, *, name: str | None, with_memory: bool = True) -> SnapshotSummary:
        """Take a snapshot of a sandbox; see `Orchestrator.snapshot`."""
        if name is not None:
            await check_name(self._fleet, name)
        manifest = await self._turns.take(
            sandbox_id, Verb.SNAPSHOT, lambda turn: snapshot(turn, name, with_memory=with_memory)
        )
        assert manifest is not None, "no state holds already what a snapshot is for"
        return await self._library.summary(manifest.snapshot_id)

    async def fork(self, sandbox_id: SandboxId, *, count: int, timeout_seconds: int) -> list[ForkedChild]:
        """Fork a sandbox; see `Orchestrator.fork`."""
        self._check_timeout(timeout_seconds)
        if timeout_seconds <= 0:
            raise Invalid("timeout: must be at least 1 second")
        if not 1 <= count <= fork_verb.CHILDREN_LIMIT:
            raise Invalid(f"count: {count} is not between 1 and {fork_verb.CHILDREN_LIMIT}")
        # The children belong to the request, not to the parent, whose own verb ends with the capture.
        return await self._forks.run(
            secrets.token_hex(8), Verb.FORK, lambda: self._fork(sandbox_id, count, timeout_seconds)
        )

    async def _fork(self, sandbox_id: SandboxId, count: int, timeout_seconds: int) -> list[ForkedChild]:
        brood = await self._turns.take(sandbox_id, Verb.FORK, lambda turn: fork_verb.capture_parent(turn, count))
        assert brood is not None, "no state holds already what a fork is for"
        return await fork_verb.start_children(self._turns, brood, timeout_seconds)

    async def rollback(self, sandbox_id: SandboxId, reference: str) -> Sandbox:
        """Roll a sandbox back; see `Orchestrator.rollback`."""
        self._existing(sandbox_id)
        target = await self._library.manifest(reference)
        record = await self._turns.take(sandbox_id, Verb.ROLLBACK, lambda turn: rollback(turn, target))
        assert record is not None, "no state holds already what a rollback is for"
        return record.sandbox

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a sandbox; see `Orchestrator.get`."""
        return self._existing(sandbox_id).sandbox

    async def find(self, query: ListQuery) -> list[Sandbox]:
        """Return the sandboxes that match; see `Orchestrator.find`."""
        found = [record.sandbox for record in self._fleet.book.all() if matches(record.sandbox, query)]
        return in_order(found, query.order)

    async def set_timeout(self, sandbox_id: SandboxId, timeout_seconds: int) -> None:
        """Move the end of a running sandbox; see `Orchestrator.set_timeout`."""
        self._check_timeout(timeout_seconds)
        record = self._running(sandbox_id)
        ends_at = self._fleet.clock.now() + timedelta(seconds=timeout_seconds)
        record = self._fleet.book.change_sandbox(record, ends_at=ends_at)
        self._fleet.deadlines.set(sandbox_id, timeout_seconds)
        await self._fleet.book.save(record)

    async def refresh(self, sandbox_id: SandboxId, duration_seconds: int) -> None:
        """Extend the life of a running sandbox; see `Orchestrator.refresh`."""
        self._check_timeout(duration_seconds)
        ends_at = self._fleet.clock.now() + timedelta(seconds=duration_seconds)
        if self._running(sandbox_id).sandbox.ends_at < ends_at:
            await self.set_timeout(sandbox_id, duration_seconds)

    async def metrics(self, sandbox_id: SandboxId, start: int | None, end: int | None) -> list[GuestMetrics]:
        """Return readings of a guest's counters; see `Orchestrator.metrics`."""
        self._existing(sandbox_id)
        return await self._readings.between(sandbox_id, start, end)

    async def route(self, sandbox_id: SandboxId, port: int) -> Route:
        """Return where a port of a running sandbox is; see `Orchestrator.route`."""
        record = self._fleet.book.find(sandbox_id)
        live = self._fleet.live.get(sandbox_id)
        if record is None:
            raise SandboxNotRoutable(sandbox_id)
        if live is None or not is_routable(record):
            self._tell_asleep(record)
        return Route(record.sandbox, live.slot.address, port, record.generation)

    @staticmethod
    def _tell_asleep(record: SandboxRecord) -> NoReturn:
        sandbox = record.sandbox
        if record.state in _WAKING_STATES:
            raise SandboxAsleep(sandbox, needs_waking=False)
        # What was paused without its memory would come back as another machine than its clients talked to.
        keeps_memory = sandbox.pause is None or sandbox.pause.with_memory
        if record.state in PAUSED_STATES and sandbox.auto_resume and keeps_memory:
            raise SandboxAsleep(sandbox, needs_waking=True)
        raise SandboxNotRoutable(record.id)

    async def wake(self, sandbox_id: SandboxId, port: int) -> Route:
        """Return where a port is once the sandbox runs; see `Orchestrator.wake`."""
        settings = self._fleet.settings
        try:
            async with asyncio.timeout(settings.wake_timeout_seconds):
                while True:
                    try:
                        return await self.route(sandbox_id, port)
                    except SandboxAsleep:
                        await self._wake(sandbox_id)
        except TimeoutError as error:
            raise WakeTimedOut(
                f"sandbox '{sandbox_id}' was not running within {settings.wake_timeout_seconds:g} s"
            ) from error
        except SandboxNotFound:
            raise SandboxNotRoutable(sandbox_id) from None

    async def _wake(self, sandbox_id: SandboxId) -> None:
        record = self._fleet.book.get(sandbox_id)
        seconds = max(record.timeout_seconds, self._fleet.settings.auto_resume_min_timeout_seconds)
        limit = self._fleet.settings.max_timeout_seconds
        await self._resume(sandbox_id, ResumeRequest(timeout_seconds=min(seconds, limit)))

    async def templates(self) -> list[Template]:
        """Return what sandboxes can be created from."""
        return await self._library.templates()

    async def find_snapshots(self, query: SnapshotQuery, *, after: Cursor | None, limit: int) -> Page:
        """Return a page of snapshots; see `Orchestrator.find_snapshots`."""
        return await self._library.find(query, after=after, limit=limit)

    async def get_snapshot(self, reference: str) -> SnapshotSummary:
        """Return a snapshot; see `Orchestrator.get_snapshot`."""
        return await self._library.summary(reference)

    async def snapshot_tree(self, reference: str) -> tuple[SnapshotSummary, ...]:
        """Return the tree of a snapshot; see `Orchestrator.snapshot_tree`."""
        return await self._library.tree(reference)

    async def delete_snapshot(self, reference: str) -> None:
        """Delete a snapshot; see `Orchestrator.delete_snapshot`."""
        await self._library.delete(reference)

    def _show_gauges(self) -> None:
        """Let the gauges ask, each time they are shown."""
        for state in SandboxState:
            fleet_module.sandboxes.labels(state=state).set_function(partial(self._count, state))
        fleet_module.promised_memory.set_function(lambda: self._fleet.admission.memory_mib)

    def _count(self, state: SandboxState) -> int:
        return sum(record.state is state for record in self._fleet.book.all())

    def _existing(self, sandbox_id: SandboxId) -> SandboxRecord:
        """Return a record that clients may know of: one that is being made or killed is not there for them."""
        record = self._fleet.book.get(sandbox_id)
        if record.state not in RUNNING_STATES | PAUSED_STATES:
            raise SandboxNotFound(sandbox_id)
        return record

    def _running(self, sandbox_id: SandboxId) -> SandboxRecord:
        """Return a record whose deadline can be moved; a paused sandbox has none."""
        record = self._existing(sandbox_id)
        if record.state is SandboxState.RESUMING:
            raise VerbRefused(sandbox_id, "setting the timeout", record.state)
        if record.state in PAUSED_STATES:
            raise SandboxNotFound(sandbox_id)
        return record
