"""What can go wrong with a sandbox's life.

AgentEnvError
├── NotFound
│   ├── SandboxNotFound        no sandbox has this id (any more)
│   └── SandboxNotRoutable     it exists no more, or does not run: traffic cannot reach it
├── Conflict
│   ├── VerbRefused            its state does not allow this verb
│   ├── IdempotencyInProgress  the first request with this key is still being worked on
│   └── IdempotencyUnknown     the first request with this key ended in a way we cannot repeat
├── Invalid
│   ├── IdempotencyMismatch    the same key came with another request
│   └── OptionUnsupported      an option that this server cannot honour
└── Exhausted
    └── AdmissionRefused       a configured limit of this node is reached
"""

from agentenv.base.errors import Conflict, Exhausted, Invalid, NotFound
from agentenv.base.ids import SandboxId


class SandboxNotFound(NotFound):
    """No sandbox has this id (any more)."""

    code = "sandbox_not_found"

    def __init__(self, sandbox_id: SandboxId | str) -> None:
        super().__init__(f"sandbox '{sandbox_id}' not found")


class SandboxNotRoutable(NotFound):
    """Traffic cannot reach this sandbox: it exists no more, or does not run."""

    code = "sandbox_not_routable"

    def __init__(self, sandbox_id: SandboxId | str) -> None:
        super().__init__(f"sandbox '{sandbox_id}' is not running")


class VerbRefused(Conflict):
    """The state of a sandbox does not allow this verb."""

    code = "verb_refused"


class IdempotencyUnknown(Conflict):
    """The first request with this key ended in a way that cannot be repeated."""

    code = "idempotency_outcome_unknown"


class IdempotencyInProgress(Conflict):
    """The first request with this key is still being worked on."""

    code = "idempotency_in_progress"


class IdempotencyMismatch(Invalid):
    """The same idempotency key came with another request."""

    code = "idempotency_request_mismatch"


class OptionUnsupported(Invalid):
    """An option that would change behaviour and that this server cannot honour."""

    code = "option_unsupported"


class AdmissionRefused(Exhausted):
    """A configured limit of this node is reached."""

    code = "sandbox_capacity_unavailable"
