"""What can go wrong with a sandbox's life.

AgentEnvError
├── NotFound
│   ├── SandboxNotFound        no sandbox has this id (any more)
│   └── SandboxNotRoutable     it exists no more, or does not run: traffic cannot reach it
│       └── SandboxAsleep      it does not run now, and traffic may wake it or wait for it
├── Conflict
│   ├── VerbRefused            its state does not allow this verb
│   ├── GuestWasUnresponsive   it was paused while its guest did not answer, and only a cold boot can bring it back
│   ├── NotOfItsLineage        a snapshot to roll back to that this sandbox does not descend from
│   ├── NameOfImage            a name for a snapshot that an image of this server has
│   ├── ImageNotDeletable      an image of this server, named where a snapshot was meant
│   ├── IdempotencyInProgress  the first request with this key is still being worked on
│   └── IdempotencyUnknown     the first request with this key ended in a way we cannot repeat
├── Invalid
│   └── IdempotencyMismatch    the same key came with another request
├── Exhausted
│   └── AdmissionRefused       a configured limit of this node is reached
├── Unavailable
│   └── ServerStopping         no new work is taken any more
└── TimedOut
    └── WakeTimedOut           a sandbox that traffic woke did not come up in time
"""

from agentenv.base.errors import Conflict, Exhausted, Invalid, NotFound, TimedOut, Unavailable
from agentenv.base.ids import SandboxId
from agentenv.orchestrator.base import Sandbox


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


class SandboxAsleep(SandboxNotRoutable):
    """A sandbox that does not run now. `needs_waking` False: it is on its way already, traffic has only to wait."""

    code = "sandbox_asleep"

    def __init__(self, sandbox: Sandbox, *, needs_waking: bool) -> None:
        super().__init__(sandbox.id)
        self.sandbox = sandbox
        self.needs_waking = needs_waking


class VerbRefused(Conflict):
    """The state of a sandbox does not allow this verb; the code names the state."""

    def __init__(self, sandbox_id: SandboxId, verb: str, state: object) -> None:
        super().__init__(
            f"{verb} of sandbox '{sandbox_id}' is not possible: it is {str(state).replace('_', ' ')}",
            code=f"sandbox_is_{state}",
        )


class GuestWasUnresponsive(Conflict):
    """A sandbox was paused while its guest did not answer, and only a cold boot can bring it back."""

    code = "sandbox_snapshot_guest_agent_unresponsive"


class NotOfItsLineage(Conflict):
    """A snapshot to roll back to that this sandbox does not descend from."""

    code = "snapshot_not_of_lineage"


class NameOfImage(Conflict):
    """A name for a snapshot that an image of this server has."""

    code = "snapshot_name_taken"


class IdempotencyUnknown(Conflict):
    """The first request with this key ended in a way that cannot be repeated."""

    code = "idempotency_outcome_unknown"


class IdempotencyInProgress(Conflict):
    """The first request with this key is still being worked on."""

    code = "idempotency_in_progress"


class IdempotencyMismatch(Invalid):
    """The same idempotency key came with another request."""

    code = "idempotency_request_mismatch"


class AdmissionRefused(Exhausted):
    """A configured limit of this node is reached."""

    code = "sandbox_capacity_unavailable"


class ImageNotDeletable(Conflict):
    """An image of this server, named where a snapshot was meant."""

    code = "image_not_deletable"


class ServerStopping(Unavailable):
    """No new work is taken any more."""

    code = "server_stopping"


class WakeTimedOut(TimedOut):
    """A sandbox that traffic woke did not come up in time."""

    code = "sandbox_wake_timed_out"
