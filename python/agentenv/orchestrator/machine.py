"""The lifecycle as a table and two pure functions: what a verb may do in a state, and where an outcome leads.

`ABSENT` stands for a sandbox that is not there, before its creation and after its end.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agentenv.base.errors import Bug
from agentenv.orchestrator.base import SandboxState


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()
Place = SandboxState | _Absent


class Verb(StrEnum):
    """Work that changes a sandbox."""

    CREATE = "create"
    KILL = "kill"


class Outcome(StrEnum):
    """How a verb ended: as asked, undone as if it had never begun, or with the sandbox gone."""

    DONE = "done"
    ROLLED_BACK = "rolled_back"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Start:
    """Begin the verb now; the sandbox is in `during` until the verb is finished."""

    during: SandboxState


@dataclass(frozen=True, slots=True)
class Join:
    """The same verb is under way: wait for its end."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The verb under way must be ended first; then begin again from where that leads."""

    running: Verb


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such sandbox."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The state does not allow the verb."""

    reason: str


Decision = Start | Join | Interrupt | Missing | Refuse

_BEGIN: Final[dict[tuple[Place, Verb], Decision]] = {
    (ABSENT, Verb.CREATE): Start(SandboxState.STARTING),
    (ABSENT, Verb.KILL): Missing(),
    (SandboxState.STARTING, Verb.CREATE): Refuse("it is being created"),
    # Deletion always wins: a sandbox that is still being made is not made first to be deleted afterwards.
    (SandboxState.STARTING, Verb.KILL): Interrupt(Verb.CREATE),
    (SandboxState.RUNNING, Verb.CREATE): Refuse("it exists"),
    (SandboxState.RUNNING, Verb.KILL): Start(SandboxState.STOPPING),
    (SandboxState.STOPPING, Verb.CREATE): Refuse("it is being killed"),
    (SandboxState.STOPPING, Verb.KILL): Join(),
    # No verb leads into these yet; a record that names one is from a newer program.
    (SandboxState.PAUSING, Verb.CREATE): Refuse("it exists"),
    (SandboxState.PAUSING, Verb.KILL): Refuse("this program cannot pause"),
    (SandboxState.PAUSED, Verb.CREATE): Refuse("it exists"),
    (SandboxState.PAUSED, Verb.KILL): Refuse("this program cannot pause"),
}

_FINISH: Final[dict[tuple[Verb, Outcome], Place]] = {
    (Verb.CREATE, Outcome.DONE): SandboxState.RUNNING,
    (Verb.CREATE, Outcome.ROLLED_BACK): ABSENT,
    (Verb.CREATE, Outcome.LOST): ABSENT,
    (Verb.KILL, Outcome.DONE): ABSENT,
    (Verb.KILL, Outcome.LOST): ABSENT,
}


def begin(place: Place, verb: Verb) -> Decision:
    """Return what `verb` may do to a sandbox that is in `place`. Total: every pair has an answer."""
    return _BEGIN[place, verb]


def finish(verb: Verb, outcome: Outcome) -> Place:
    """Return where a sandbox is after `verb` ended with `outcome`."""
    try:
        return _FINISH[verb, outcome]
    except KeyError:
        raise Bug(f"{verb} cannot end as {outcome}") from None
