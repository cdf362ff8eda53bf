"""An orchestrator without machines: sandboxes are rows, and their ports lead to servers on loopback."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

from agentenv.base.ids import SandboxId, TemplateId, new_sandbox_id, new_snapshot_id
from agentenv.guest.base import ENVD_VERSION, GuestMetrics
from agentenv.images.errors import TemplateNotFound
from agentenv.orchestrator.base import (
    Connected,
    CreateRequest,
    ForkedChild,
    ListQuery,
    OnTimeout,
    Order,
    PauseFacts,
    Route,
    Sandbox,
    SandboxState,
    Template,
)
from agentenv.orchestrator.errors import (
    AdmissionRefused,
    SandboxAsleep,
    SandboxNotFound,
    SandboxNotRoutable,
    VerbRefused,
)
from agentenv.snapshots.base import Cursor, Page, SnapshotKind, SnapshotQuery, SnapshotSummary
from agentenv.snapshots.errors import SnapshotNotFound

LOOPBACK = IPv4Address("127.0.0.1")
TEMPLATE = Template(TemplateId("tbase"), ("base",), 2, 1024, 10240)
_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeOrchestrator:
    """Implements `Orchestrator`. `failure` is raised by the next verb; `ports` maps guest ports to loopback ones."""

    def __init__(self) -> None:
        self.sandboxes: dict[SandboxId, Sandbox] = {}
        self.created: list[CreateRequest] = []
        self.ports: dict[int, int] = {}
        self.generation = 1
        self.failure: Exception | None = None
        self.readings: list[GuestMetrics] = []
        self.snapshots: list[SnapshotSummary] = []
        self.asked: list[tuple[object, ...]] = []
        self.timeouts: list[tuple[SandboxId, int]] = []
        self.refreshes: list[tuple[SandboxId, int]] = []

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def add(self, **changes: object) -> Sandbox:
        """Add a running sandbox, each a second younger than the one before."""
        sandbox = _sandbox(CreateRequest(template="base", timeout_seconds=300), len(self.sandboxes))
        sandbox = replace(sandbox, **changes)  # type: ignore[arg-type]
        self.sandboxes[sandbox.id] = sandbox
        return sandbox

    async def create(self, request: CreateRequest) -> Sandbox:
        self._fail()
        if request.template.partition(":")[0] not in {"base", TEMPLATE.template_id}:
            raise TemplateNotFound(f"template '{request.template}' not found")
        self.created.append(request)
        sandbox = _sandbox(request, len(self.sandboxes))
        self.sandboxes[sandbox.id] = sandbox
        return sandbox

    async def kill(self, sandbox_id: SandboxId) -> None:
        self._fail()
        await self.get(sandbox_id)
        del self.sandboxes[sandbox_id]

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        self._fail()
        if sandbox_id not in self.sandboxes:
            raise SandboxNotFound(sandbox_id)
        return self.sandboxes[sandbox_id]

    async def find(self, query: ListQuery) -> list[Sandbox]:
        self._fail()
        found = [sandbox for sandbox in self.sandboxes.values() if _matches(sandbox, query)]
        return sorted(found, key=lambda one: (one.started_at, one.id), reverse=query.order is Order.DESCENDING)

    async def connect(
        self,
        sandbox_id: SandboxId,
        timeout_seconds: int,
        *,
        with_memory: bool = True,
        auto_pause: bool | None = None,
        must_be_paused: bool = False,
    ) -> Connected:
        self.timeouts.append((sandbox_id, timeout_seconds))
        self.asked.append(("connect", with_memory, auto_pause, must_be_paused))
        sandbox = await self.get(sandbox_id)
        return Connected(sandbox, resumed=sandbox.state is SandboxState.PAUSED)

    async def pause(self, sandbox_id: SandboxId, *, with_memory: bool = True, needs_guest: bool = False) -> None:
        sandbox = await self.get(sandbox_id)
        if sandbox.state is SandboxState.PAUSED:
            raise VerbRefused(sandbox_id, "pause", sandbox.state)
        self.asked.append(("pause", with_memory, needs_guest))
        facts = PauseFacts(with_memory=with_memory, guest_answered=True)
        self.sandboxes[sandbox_id] = replace(sandbox, state=SandboxState.PAUSED, pause=facts)

    async def snapshot(self, sandbox_id: SandboxId, *, name: str | None, with_memory: bool = True) -> SnapshotSummary:
        sandbox = await self.get(sandbox_id)
        self.asked.append(("snapshot", name, with_memory))
        summary = a_snapshot(sandbox, len(self.snapshots), name)
        self.snapshots.append(summary)
        return summary

    async def fork(self, sandbox_id: SandboxId, *, count: int, timeout_seconds: int) -> list[ForkedChild]:
        await self.get(sandbox_id)
        self.asked.append(("fork", count, timeout_seconds))
        failed = ForkedChild(error=AdmissionRefused("this node is full"))
        return [*(ForkedChild(sandbox=self.add()) for _ in range(count - 1)), failed]

    async def rollback(self, sandbox_id: SandboxId, reference: str) -> Sandbox:
        self.asked.append(("rollback", reference))
        await self.get_snapshot(reference)
        return await self.get(sandbox_id)

    async def find_snapshots(self, query: SnapshotQuery, *, after: Cursor | None, limit: int) -> Page:
        found = [one for one in reversed(self.snapshots) if query.sandbox_id in {None, one.sandbox_id}]
        found = [one for one in found if query.name is None or f"{query.name}:default" in one.names]
        found = [one for one in found if after is None or one.created_at < after.created_at]
        page = tuple(found[:limit])
        return Page(page, Cursor(page[-1].created_at, page[-1].snapshot_id) if len(found) > limit else None)

    async def get_snapshot(self, reference: str) -> SnapshotSummary:
        for one in self.snapshots:
            if reference == one.snapshot_id or f"{reference}:default" in one.names:
                return one
        raise SnapshotNotFound(f"snapshot '{reference}' not found")

    async def snapshot_tree(self, reference: str) -> tuple[SnapshotSummary, ...]:
        return (await self.get_snapshot(reference),)

    async def delete_snapshot(self, reference: str) -> None:
        self.snapshots.remove(await self.get_snapshot(reference))

    async def set_timeout(self, sandbox_id: SandboxId, timeout_seconds: int) -> None:
        await self.get(sandbox_id)
        self.timeouts.append((sandbox_id, timeout_seconds))

    async def refresh(self, sandbox_id: SandboxId, duration_seconds: int) -> None:
        await self.get(sandbox_id)
        self.refreshes.append((sandbox_id, duration_seconds))

    async def metrics(self, sandbox_id: SandboxId, start: int | None, end: int | None) -> list[GuestMetrics]:
        await self.get(sandbox_id)
        return [one for one in self.readings if (start or 0) <= one.timestamp <= (end or one.timestamp)]

    async def route(self, sandbox_id: SandboxId, port: int) -> Route:
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise SandboxNotRoutable(sandbox_id)
        if sandbox.state is not SandboxState.RUNNING:
            if sandbox.auto_resume:
                raise SandboxAsleep(sandbox, needs_waking=sandbox.state is SandboxState.PAUSED)
            raise SandboxNotRoutable(sandbox_id)
        return Route(sandbox, LOOPBACK, self.ports.get(port, port), self.generation)

    async def wake(self, sandbox_id: SandboxId, port: int) -> Route:
        self._fail()
        self.asked.append(("wake", port))
        self.sandboxes[sandbox_id] = replace(self.sandboxes[sandbox_id], state=SandboxState.RUNNING)
        return await self.route(sandbox_id, port)

    async def templates(self) -> list[Template]:
        return [TEMPLATE]


def _sandbox(request: CreateRequest, index: int) -> Sandbox:
    started_at = _START + timedelta(seconds=index)
    return Sandbox(
        id=new_sandbox_id(),
        template_id=TEMPLATE.template_id,
        template_name="base",
        state=SandboxState.RUNNING,
        started_at=started_at,
        ends_at=started_at + timedelta(seconds=request.timeout_seconds),
        vcpus=TEMPLATE.vcpus,
        memory_mib=TEMPLATE.memory_mib,
        disk_mib=TEMPLATE.disk_mib,
        metadata=request.metadata,
        envd_version=ENVD_VERSION,
        envd_token="envd-token",
        traffic_token=None if request.allow_public_traffic else "traffic-token",
        allow_internet=request.allow_internet,
        allow_public_traffic=request.allow_public_traffic,
        mask_request_host=request.mask_request_host,
        on_timeout=OnTimeout.PAUSE if request.auto_pause else OnTimeout.KILL,
        auto_resume=request.auto_resume,
        auto_pause_memory=request.auto_pause_memory,
    )


def a_snapshot(sandbox: Sandbox, index: int, name: str | None = None) -> SnapshotSummary:
    """Return a snapshot of a sandbox, each a second younger than the one before."""
    created_at = _START + timedelta(seconds=index)
    return SnapshotSummary(
        snapshot_id=new_snapshot_id(created_at),
        kind=SnapshotKind.SNAPSHOT,
        names=() if name is None else (f"{name}:default",),
        parent_id=None,
        sandbox_id=sandbox.id,
        template_id=sandbox.template_id,
        created_at=created_at,
        vcpus=sandbox.vcpus,
        memory_mib=sandbox.memory_mib,
        disk_size_bytes=sandbox.disk_mib * 2**20,
        own_bytes=1000,
        has_memory=True,
        envd_version=ENVD_VERSION,
    )


def _matches(sandbox: Sandbox, query: ListQuery) -> bool:
    return (
        sandbox.state in query.states
        and query.metadata.items() <= sandbox.metadata.items()
        and query.template in {None, sandbox.template_id, sandbox.template_name}
        and (query.started_after is None or sandbox.started_at >= query.started_after)
    )
