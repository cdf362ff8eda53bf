"""An orchestrator without machines: sandboxes are rows, and their ports lead to servers on loopback."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

from agentenv.base.ids import SandboxId, TemplateId, new_sandbox_id
from agentenv.guest.base import ENVD_VERSION, GuestMetrics
from agentenv.images.errors import TemplateNotFound
from agentenv.orchestrator.base import (
    Connected,
    CreateRequest,
    ListQuery,
    OnTimeout,
    Order,
    Route,
    Sandbox,
    SandboxState,
    Template,
)
from agentenv.orchestrator.errors import SandboxNotFound, SandboxNotRoutable

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

    async def connect(self, sandbox_id: SandboxId, timeout_seconds: int) -> Connected:
        self.timeouts.append((sandbox_id, timeout_seconds))
        sandbox = await self.get(sandbox_id)
        return Connected(sandbox, resumed=sandbox.state is SandboxState.PAUSED)

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
        if sandbox is None or sandbox.state is not SandboxState.RUNNING:
            raise SandboxNotRoutable(sandbox_id)
        return Route(sandbox, LOOPBACK, self.ports.get(port, port), self.generation)

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
        on_timeout=OnTimeout.KILL,
        auto_resume=request.auto_resume,
    )


def _matches(sandbox: Sandbox, query: ListQuery) -> bool:
    return (
        sandbox.state in query.states
        and query.metadata.items() <= sandbox.metadata.items()
        and query.template in {None, sandbox.template_id, sandbox.template_name}
        and (query.started_after is None or sandbox.started_at >= query.started_after)
    )
