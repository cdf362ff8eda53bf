"""The façade of the lifecycle: finds the verb for a request and who may join it. Decisions are `machine`'s."""

from datetime import timedelta
from functools import partial

from agentenv.base import aio, ids, log
from agentenv.base.errors import Invalid
from agentenv.base.ids import SandboxId
from agentenv.guest.base import GuestMetrics
from agentenv.orchestrator import fleet as fleet_module
from agentenv.orchestrator import machine, recovery
from agentenv.orchestrator.base import Connected, CreateRequest, ListQuery, Route, Sandbox, SandboxState, Template
from agentenv.orchestrator.errors import (
    IdempotencyUnknown,
    OptionUnsupported,
    SandboxNotFound,
    SandboxNotRoutable,
    VerbRefused,
)
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.idempotency import IdempotencyKeys, request_digest
from agentenv.orchestrator.machine import Verb
from agentenv.orchestrator.readings import Readings
from agentenv.orchestrator.record import SandboxRecord, in_order, is_routable, matches
from agentenv.orchestrator.verbs.create import create
from agentenv.orchestrator.verbs.kill import kill
from agentenv.runtime.live import Live

_log = log.get("orchestrator")
_KILLS_AT_ONCE = 16


class Service:
    """Implements `orchestrator.base.Orchestrator` on one node."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._creations: aio.Operations[SandboxRecord] = aio.Operations()
        self._kills: aio.Operations[None] = aio.Operations()
        self._keys = IdempotencyKeys()
        self._readings = Readings(fleet)

    async def start(self, records: list[SandboxRecord]) -> None:
        """Take over what an earlier process left, and begin to watch."""
        fleet = self._fleet
        self._show_gauges()
        for sandbox_id in await recovery.recover(fleet, records):
            record = fleet.book.get(sandbox_id)
            if record.idempotency_key is not None and record.request_digest is not None:
                self._keys.finish(record.idempotency_key, record.request_digest, sandbox_id)
            self._watch(fleet.live[sandbox_id])
        fleet.supervisor.start("deadlines", fleet.deadlines.run(fleet.supervisor, self._expire))
        fleet.supervisor.every("guest_metrics", fleet.settings.metrics_interval_seconds, self._readings.sample)

    async def stop(self, *, detach: bool) -> frozenset[int]:
        """End all sandboxes in bounded parallel, or leave them running for the next process.

        Returns the network slots of those that run on.
        """
        fleet = self._fleet
        await self._creations.cancel_all()
        if detach:
            return await self._detach()
        running = [record.sandbox.id for record in fleet.book.all()]
        for sandbox_id, error in await aio.for_each(running, self._kill_at_stop, at_once=_KILLS_AT_ONCE):
            _log.error("sandbox_not_killed", sandbox_id=sandbox_id, reason=str(error))
        await self._kills.drain()
        return frozenset()

    async def _detach(self) -> frozenset[int]:
        fleet = self._fleet
        for record in fleet.book.all():
            fleet.deadlines.clear(record.sandbox.id)
        # What is being killed is neither ours to keep nor the next process's to find half-way.
        await self._kills.drain()
        # Taken out first, so that nobody who notices the end of a machine now takes it for a sandbox of ours.
        detached, fleet.live = list(fleet.live.values()), {}
        for live in detached:
            await live.detach()
        return frozenset(live.slot.index for live in detached)

    async def _kill_at_stop(self, sandbox_id: SandboxId) -> None:
        await self._end_if_there(sandbox_id, "server_stopped")

    async def create(self, request: CreateRequest) -> Sandbox:
        """Start a sandbox; see `Orchestrator.create`."""
        self._refuse_unsupported(request)
        key, digest = request.idempotency_key, request_digest(request)
        if key is not None and (made := self._keys.begin(key, digest)) is not None:
            return self._made_before(key, made)
        sandbox_id = ids.new_sandbox_id()
        record = await self._creations.run(sandbox_id, Verb.CREATE, lambda: self._create(sandbox_id, request, digest))
        return record.sandbox

    async def _create(self, sandbox_id: SandboxId, request: CreateRequest, digest: str) -> SandboxRecord:
        key = request.idempotency_key
        try:
            record = await create(self._fleet, sandbox_id, request, digest)
        except BaseException:
            if key is not None:
                self._keys.forget(key)
            raise
        if key is not None:
            self._keys.finish(key, digest, sandbox_id)
        self._watch(self._fleet.live[sandbox_id])
        return record

    def _refuse_unsupported(self, request: CreateRequest) -> None:
        if request.auto_pause:
            raise OptionUnsupported(
                "autoPause: this server cannot pause sandboxes; leave it out or send false, and the sandbox is killed "
                "when its time is over"
            )
        if request.auto_resume:
            raise OptionUnsupported("autoResume: this server cannot pause sandboxes, so there is nothing to resume")
        if request.timeout_seconds <= 0:
            raise Invalid("timeout: must be at least 1 second")
        self._check_timeout(request.timeout_seconds)

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
        await self._end(sandbox_id, "killed")

    async def _end(self, sandbox_id: SandboxId, cause: str) -> None:
        while True:
            record = self._fleet.book.find(sandbox_id)
            match machine.begin(machine.ABSENT if record is None else record.sandbox.state, Verb.KILL):
                case machine.Missing():
                    raise SandboxNotFound(sandbox_id)
                case machine.Refuse(reason):
                    raise VerbRefused(f"sandbox '{sandbox_id}' cannot be killed: {reason}")
                case machine.Interrupt(running):
                    await self._creations.cancel(sandbox_id, running)
                case machine.Start() | machine.Join():
                    return await self._kills.run(sandbox_id, Verb.KILL, lambda: kill(self._fleet, sandbox_id, cause))

    async def _end_if_there(self, sandbox_id: SandboxId, cause: str) -> None:
        try:
            await self._end(sandbox_id, cause)
        except SandboxNotFound:
            return  # somebody else was faster

    async def _expire(self, sandbox_id: SandboxId) -> None:
        await self._end_if_there(sandbox_id, "timed_out")

    def _watch(self, live: Live) -> None:
        self._fleet.supervisor.start(f"watch:{live.sandbox_id}", self._end_with_machine(live))

    async def _end_with_machine(self, live: Live) -> None:
        end = await live.wait_ended()
        if self._fleet.live.get(live.sandbox_id) is not live:
            return  # we ended it ourselves
        _log.warning("machine_ended", sandbox_id=live.sandbox_id, cause=end.cause, detail=end.detail)
        await self._end_if_there(live.sandbox_id, end.cause)

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a sandbox; see `Orchestrator.get`."""
        return self._existing(sandbox_id).sandbox

    async def find(self, query: ListQuery) -> list[Sandbox]:
        """Return the sandboxes that match; see `Orchestrator.find`."""
        found = [record.sandbox for record in self._fleet.book.all() if matches(record.sandbox, query)]
        return in_order(found, query.order)

    async def connect(self, sandbox_id: SandboxId, timeout_seconds: int) -> Connected:
        """Make sure that a sandbox runs; see `Orchestrator.connect`."""
        self._check_timeout(timeout_seconds)
        await self.refresh(sandbox_id, timeout_seconds)
        return Connected(self._existing(sandbox_id).sandbox, resumed=False)

    async def set_timeout(self, sandbox_id: SandboxId, timeout_seconds: int) -> None:
        """Move the end of a running sandbox; see `Orchestrator.set_timeout`."""
        self._check_timeout(timeout_seconds)
        record = self._existing(sandbox_id)
        ends_at = self._fleet.clock.now() + timedelta(seconds=timeout_seconds)
        record = self._fleet.book.change_sandbox(record, ends_at=ends_at)
        self._fleet.deadlines.set(sandbox_id, timeout_seconds)
        await self._fleet.book.save(record)

    async def refresh(self, sandbox_id: SandboxId, duration_seconds: int) -> None:
        """Extend the life of a running sandbox; see `Orchestrator.refresh`."""
        self._check_timeout(duration_seconds)
        ends_at = self._fleet.clock.now() + timedelta(seconds=duration_seconds)
        if self._existing(sandbox_id).sandbox.ends_at < ends_at:
            await self.set_timeout(sandbox_id, duration_seconds)

    async def metrics(self, sandbox_id: SandboxId, start: int | None, end: int | None) -> list[GuestMetrics]:
        """Return readings of a guest's counters; see `Orchestrator.metrics`."""
        self._existing(sandbox_id)
        return await self._readings.between(sandbox_id, start, end)

    async def route(self, sandbox_id: SandboxId, port: int) -> Route:
        """Return where a port of a running sandbox is; see `Orchestrator.route`."""
        record = self._fleet.book.find(sandbox_id)
        live = self._fleet.live.get(sandbox_id)
        if record is None or live is None or not is_routable(record):
            raise SandboxNotRoutable(sandbox_id)
        return Route(record.sandbox, live.slot.address, port, record.generation)

    async def templates(self) -> list[Template]:
        """Return what sandboxes can be created from."""
        return [
            Template(
                template_id=image.template_id,
                names=image.names,
                vcpus=image.vcpus,
                memory_mib=image.memory_mib,
                disk_mib=image.disk_size_bytes // 2**20,
            )
            for image in await self._fleet.catalogue.list()
        ]

    def _show_gauges(self) -> None:
        """Let the gauges ask, each time they are shown."""
        for state in SandboxState:
            fleet_module.sandboxes.labels(state=state).set_function(partial(self._count, state))
        fleet_module.promised_memory.set_function(lambda: self._fleet.admission.memory_mib)

    def _count(self, state: SandboxState) -> int:
        return sum(record.sandbox.state is state for record in self._fleet.book.all())

    def _existing(self, sandbox_id: SandboxId) -> SandboxRecord:
        """Return a record that clients may know of: one that is being made or killed is not there for them."""
        record = self._fleet.book.get(sandbox_id)
        if record.sandbox.state in {SandboxState.STARTING, SandboxState.STOPPING}:
            raise SandboxNotFound(sandbox_id)
        return record
