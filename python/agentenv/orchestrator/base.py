"""The seam of `orchestrator`: what a door may ask for, and what it is told."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv4Address
from typing import Protocol

from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId, TemplateId
from agentenv.guest.base import GuestMetrics
from agentenv.snapshots.base import Cursor, Page, SnapshotQuery, SnapshotSummary


class SandboxState(StrEnum):
    """Where a sandbox is in its life. Its guest runs in `RUNNING`, and but for a moment in the two after it."""

    STARTING = "starting"
    RUNNING = "running"
    SNAPSHOTTING = "snapshotting"
    FORKING = "forking"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    ROLLING_BACK = "rolling_back"
    STOPPING = "stopping"


# States in which the guest runs and its ports answer.
ROUTABLE_STATES = frozenset({SandboxState.RUNNING, SandboxState.SNAPSHOTTING, SandboxState.FORKING})
# What clients, who know two states only, see as paused; the rest that they see at all is running to them.
PAUSED_STATES = frozenset({SandboxState.PAUSING, SandboxState.PAUSED})
RUNNING_STATES = ROUTABLE_STATES | {SandboxState.RESUMING, SandboxState.ROLLING_BACK}


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
    """What a client asks of a new sandbox; `auto_pause` None means the server's default.

    `template` is an image or a snapshot, by id or name. `auto_pause_memory` False lets expiry keep the disk alone.
    """

    template: str
    timeout_seconds: int
    auto_pause: bool | None = None
    auto_pause_memory: bool = True
    auto_resume: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    allow_internet: bool | None = None
    allow_public_traffic: bool = True
    mask_request_host: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseFacts:
    """How a sandbox was paused: with its memory or with its disk alone, and whether its daemon answered then."""

    with_memory: bool
    guest_answered: bool


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
    auto_pause_memory: bool = True
    pause: PauseFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Which sandboxes to list. Every pair of `metadata` must match; `template` is an id or a name."""

    states: frozenset[SandboxState] = RUNNING_STATES | PAUSED_STATES
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedChild:
    """What became of one child of a fork: a running sandbox, or why there is none."""

    sandbox: Sandbox | None = None
    error: AgentEnvError | None = None


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

    async def connect(
        self,
        sandbox_id: SandboxId,
        timeout_seconds: int,
        *,
        with_memory: bool = True,
        auto_pause: bool | None = None,
        must_be_paused: bool = False,
    ) -> Connected:
        """Make sure that a sandbox runs, for at least `timeout_seconds` from now; its end is only ever extended.

        A paused one is resumed, without its memory if so asked, and `auto_pause` says what its next end is; with
        `must_be_paused` one that runs already is a conflict. Raises `SandboxNotFound`, `VerbRefused`,
        `GuestWasUnresponsive`, and what a launch raises; the sandbox is paused then as before.
        """
        ...

    async def pause(self, sandbox_id: SandboxId, *, with_memory: bool = True, needs_guest: bool = False) -> None:
        """Put a running sandbox into a durable snapshot and end its machine.

        Raises `SandboxNotFound`, `VerbRefused` (it is paused already, ...), `GuestUnresponsive`, or why it could not
        be captured; the sandbox runs on then.
        """
        ...

    async def snapshot(self, sandbox_id: SandboxId, *, name: str | None, with_memory: bool = True) -> SnapshotSummary:
        """Take a snapshot of a running sandbox, which runs on.

        Raises `SandboxNotFound`, `VerbRefused`, `NameInvalid`, `NameOfImage`, or why it could not be captured.
        """
        ...

    async def fork(self, sandbox_id: SandboxId, *, count: int, timeout_seconds: int) -> list[ForkedChild]:
        """Start up to 16 children from one capture of a running sandbox, which runs on; each has its own outcome.

        Raises `SandboxNotFound`, `VerbRefused`, `Invalid`, or why it could not be captured.
        """
        ...

    async def rollback(self, sandbox_id: SandboxId, reference: str) -> Sandbox:
        """Make a running sandbox again what a snapshot of its own lineage was.

        Raises `SandboxNotFound`, `SnapshotNotFound`, `NotOfItsLineage`, `SnapshotUnfit`, and what a launch raises;
        in the last case it is paused at the snapshot.
        """
        ...

    async def find_snapshots(self, query: SnapshotQuery, *, after: Cursor | None, limit: int) -> Page:
        """Return a page of snapshots, the newest first."""
        ...

    async def get_snapshot(self, reference: str) -> SnapshotSummary:
        """Return a snapshot by id or name. Raises `SnapshotNotFound`."""
        ...

    async def snapshot_tree(self, reference: str) -> tuple[SnapshotSummary, ...]:
        """Return the tree that a snapshot belongs to, parents before children. Raises `SnapshotNotFound`."""
        ...

    async def delete_snapshot(self, reference: str) -> None:
        """Delete a snapshot. Raises `SnapshotNotFound`, also the second time, and `ImageNotDeletable`."""
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
        """Return where a port of a running sandbox is.

        Raises `SandboxNotRoutable`, and `SandboxAsleep` for one that `wake` would bring up.
        """
        ...

    async def wake(self, sandbox_id: SandboxId, port: int) -> Route:
        """Return where a port is once the sandbox runs, resuming it when it wants to be woken by traffic.

        Raises `SandboxNotRoutable`, `WakeTimedOut`, and what a launch raises.
        """
        ...

    async def templates(self) -> list[Template]:
        """Return what sandboxes can be created from."""
        ...
