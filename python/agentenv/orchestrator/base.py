"""The seam of `orchestrator`: what a door may ask for, and what it is told."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv4Address
from typing import Protocol

from agentenv.base.ids import SandboxId, TemplateId
from agentenv.guest.base import GuestMetrics


class SandboxState(StrEnum):
    """Where a sandbox is in its life. Only a running one can be routed to."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"


class OnTimeout(StrEnum):
    """What happens to a sandbox whose time is over."""

    KILL = "kill"
    PAUSE = "pause"


class Order(StrEnum):
    """The order of a list, by start time."""

    ASCENDING = "asc"
    DESCENDING = "desc"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """What a client asks of a new sandbox; `auto_pause` None means the server's default."""

    template: str
    timeout_seconds: int
    auto_pause: bool | None = None
    auto_resume: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    allow_internet: bool | None = None
    allow_public_traffic: bool = True
    mask_request_host: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A sandbox as a door may show it. Times are UTC; `environment` and secrets of others never appear here."""

    id: SandboxId
    template_id: TemplateId
    template_name: str | None
    state: SandboxState
    started_at: datetime
    ends_at: datetime
    vcpus: int
    memory_mib: int
    disk_mib: int
    metadata: dict[str, str]
    envd_version: str
    envd_token: str
    traffic_token: str | None
    allow_internet: bool | None
    allow_public_traffic: bool
    mask_request_host: str | None
    on_timeout: OnTimeout
    auto_resume: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Which sandboxes to list. Every pair of `metadata` must match; `template` is an id or a name."""

    states: frozenset[SandboxState] = frozenset({SandboxState.RUNNING, SandboxState.PAUSING, SandboxState.PAUSED})
    metadata: dict[str, str] = field(default_factory=dict)
    template: str | None = None
    started_after: datetime | None = None
    order: Order = Order.DESCENDING


@dataclass(frozen=True, slots=True)
class Route:
    """Where one port of a running sandbox is, for one generation of its machine.

    Connections made under one `generation` are never used under another.
    """

    sandbox: Sandbox
    host: IPv4Address
    port: int
    generation: int


@dataclass(frozen=True, slots=True)
class Connected:
    """The answer to connect: the sandbox, and whether it had to be resumed."""

    sandbox: Sandbox
    resumed: bool


@dataclass(frozen=True, slots=True)
class Template:
    """A template as a door may show it."""

    template_id: TemplateId
    names: tuple[str, ...]
    vcpus: int
    memory_mib: int
    disk_mib: int


class Orchestrator(Protocol):
    """The lifecycle, as the doors see it.

    Promises: a verb that was accepted is finished whether or not the caller waits; equal verbs on one sandbox
    join; an error leaves nothing half-done behind.
    """

    async def create(self, request: CreateRequest) -> Sandbox:
        """Start a sandbox and return once its daemon answers.

        Raises `TemplateNotFound`, `AdmissionRefused` (a limit is reached), `IdempotencyMismatch`, `LaunchFailed`.
        """
        ...

    async def kill(self, sandbox_id: SandboxId) -> None:
        """End a sandbox and give back all it held. Raises `SandboxNotFound`."""
        ...

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a sandbox. Raises `SandboxNotFound`."""
        ...

    async def find(self, query: ListQuery) -> list[Sandbox]:
        """Return the sandboxes that match, in the order asked for (ties by id)."""
        ...

    async def connect(self, sandbox_id: SandboxId, timeout_seconds: int) -> Connected:
        """Make sure that a sandbox runs, for at least `timeout_seconds` from now; its end is only ever extended."""
        ...

    async def set_timeout(self, sandbox_id: SandboxId, timeout_seconds: int) -> None:
        """Let a running sandbox end `timeout_seconds` from now; may shorten. Raises `SandboxNotFound`."""
        ...

    async def refresh(self, sandbox_id: SandboxId, duration_seconds: int) -> None:
        """Let a running sandbox live for at least `duration_seconds` from now. Raises `SandboxNotFound`."""
        ...

    async def metrics(self, sandbox_id: SandboxId, start: int | None, end: int | None) -> list[GuestMetrics]:
        """Return readings between two Unix times in seconds, oldest first. Raises `SandboxNotFound`."""
        ...

    async def route(self, sandbox_id: SandboxId, port: int) -> Route:
        """Return where a port of a running sandbox is. Raises `SandboxNotRoutable`."""
        ...

    async def templates(self) -> list[Template]:
        """Return what sandboxes can be created from."""
        ...
