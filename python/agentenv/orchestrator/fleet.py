"""What the verbs share: the book, the live sandboxes, admission and deadlines of this node."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from agentenv.base import aio, metrics
from agentenv.base.clock import Clock
from agentenv.base.ids import SandboxId
from agentenv.images.base import Catalogue
from agentenv.orchestrator.admission import Admission
from agentenv.orchestrator.deadlines import Deadlines
from agentenv.orchestrator.record import Book
from agentenv.orchestrator.settings import OrchestratorSettings
from agentenv.runtime.launcher import Launcher
from agentenv.runtime.live import Live
from agentenv.snapshots.base import Repository

verb_seconds = metrics.histogram(
    "aenv_orchestrator_verb_seconds", "Duration of a verb, by its outcome.", ("verb", "outcome")
)
ends = metrics.counter("aenv_orchestrator_sandbox_ends", "Sandboxes that ended, by cause.", ("cause",))
sandboxes = metrics.gauge("aenv_orchestrator_sandboxes", "Sandboxes on this node, by state.", ("state",))
promised_memory = metrics.gauge("aenv_orchestrator_promised_memory_mib", "Memory promised to guests.")


@dataclass(slots=True, kw_only=True)
class Fleet:
    """The sandboxes of this node and what decides about them.

    `cut` ends the connections that clients have to a sandbox; it is called when its machine is about to go.
    `watch` is told of each sandbox that begins to run.
    """

    book: Book
    launcher: Launcher
    catalogue: Catalogue
    repository: Repository
    admission: Admission
    deadlines: Deadlines
    starts: asyncio.Semaphore
    supervisor: aio.Supervisor
    clock: Clock
    settings: OrchestratorSettings
    cut: Callable[[SandboxId], None]
    watch: Callable[[Live], None] = field(default=lambda live: None)
    live: dict[SandboxId, Live] = field(default_factory=dict)
