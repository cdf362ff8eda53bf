"""The values that this package speaks in: sandboxes as a server describes them, processes as their daemon does."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from agentenv.base.ids import SandboxId


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says about the server; it goes before every other source."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)


class SandboxState(StrEnum):
    """What a listed sandbox is doing."""

    RUNNING = "running"
    PAUSED = "paused"


class OnTimeout(StrEnum):
    """What happens to a sandbox whose time is over."""

    PAUSE = "pause"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class NewSandbox:
    """What to create. What is None is left to the server."""

    template: str
    timeout_seconds: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    allow_internet: bool = True
    on_timeout: OnTimeout | None = None
    auto_resume: bool = False


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox that can be talked to. `access_token` opens its daemon and is never shown."""

    sandbox_id: SandboxId
    template_id: str
    envd_version: str
    access_token: str | None = field(repr=False)
    alias: str | None = None
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class ListedSandbox:
    """A sandbox as lists and look-ups show it."""

    sandbox_id: SandboxId
    template_id: str
    alias: str | None
    state: SandboxState
    started_at: datetime
    end_at: datetime
    cpu_count: int
    memory_mib: int
    disk_size_mib: int
    envd_version: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as lists and look-ups show it."""

    snapshot_id: str
    names: tuple[str, ...]
    parent_id: str | None
    sandbox_id: str | None
    created_at: datetime | None
    memory_mib: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SandboxFilter:
    """Which sandboxes to list; the empty filter lists all."""

    states: frozenset[SandboxState] = frozenset()
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SandboxPage:
    """A part of a list; `next_token` asks for the one after it."""

    sandboxes: tuple[ListedSandbox, ...]
    next_token: str | None


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """Size of a terminal in characters."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Command:
    """What to start in a sandbox. With `terminal`, the process gets a terminal of that size in place of pipes.

    `user` None is the sandbox's default user; `timeout_seconds` None lets it run for ever.
    """

    program: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    user: str | None = None
    stdin: bool = False
    terminal: TerminalSize | None = None
    timeout_seconds: float | None = None


class Signal(StrEnum):
    """The signals that the contract lets a client send."""

    TERMINATE = "SIGNAL_SIGTERM"
    KILL = "SIGNAL_SIGKILL"


class Channel(StrEnum):
    """Where output comes from; the words are those of the wire."""

    STDOUT = "stdout"
    STDERR = "stderr"
    TERMINAL = "pty"


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that a process wrote, unchanged."""

    channel: Channel
    content: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process; all its output came before.

    `signal` is the name that ended it (`killed`), None when it exited by itself with `exit_code`.
    """

    exit_code: int
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The stream broke and was taken up again: output written in between is lost."""


ProcessEvent = Output | Ended | Reconnected
