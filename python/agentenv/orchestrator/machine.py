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
    """Work that changes a sandbox. `LAPSE` is nobody's wish: its machine ended, and its checkpoint remains."""

    CREATE = "create"
    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    SNAPSHOT = "snapshot"
    FORK = "fork"
    ROLLBACK = "rollback"
    LAPSE = "lapse"


class Outcome(StrEnum):
    """How a verb ended: as asked, undone as if it had never begun, with only the checkpoint left, or with nothing."""

    DONE = "done"
    ROLLED_BACK = "rolled_back"
    LAPSED = "lapsed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Start:
    """Begin the verb now; the sandbox is in `during` until the verb is finished."""

    during: SandboxState


@dataclass(frozen=True, slots=True)
class Join:
    """The same verb is under way: an equal request shares its end, another one waits for it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Another verb is under way, after which this one makes sense: wait for its end, then ask again."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The verb under way must be ended first; then ask again."""


@dataclass(frozen=True, slots=True)
class Already:
    """What the verb is for holds already."""


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such sandbox, as far as clients may know."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The state contradicts the verb."""


Decision = Start | Join | Wait | Interrupt | Already | Missing | Refuse

_S = SandboxState
# After a capture the sandbox runs on, so whatever needs a running one waits for it. What would contradict the verb
# under way (pausing what is being resumed, forking what is being paused) is refused at once.
_NEEDS_RUNNING: Final[dict[Place, Decision]] = {
    ABSENT: Missing(),
    _S.STARTING: Missing(),
    _S.PAUSING: Refuse(),
    _S.PAUSED: Refuse(),
    _S.RESUMING: Wait(),
    _S.SNAPSHOTTING: Wait(),
    _S.FORKING: Wait(),
    _S.ROLLING_BACK: Wait(),
    _S.STOPPING: Missing(),
}

_BEGIN: Final[dict[Verb, dict[Place, Decision]]] = {
    Verb.CREATE: {ABSENT: Start(_S.STARTING), **dict.fromkeys(_S, Refuse())},
    # Deletion always wins: whatever is under way is ended first, not finished first.
    Verb.KILL: {
        **dict.fromkeys(_S, Interrupt()),
        ABSENT: Missing(),
        _S.RUNNING: Start(_S.STOPPING),
        _S.PAUSED: Start(_S.STOPPING),
        _S.STOPPING: Join(),
    },
    Verb.PAUSE: _NEEDS_RUNNING | {_S.RUNNING: Start(_S.PAUSING), _S.PAUSING: Join(), _S.RESUMING: Refuse()},
    Verb.RESUME: {
        ABSENT: Missing(),
        _S.STARTING: Missing(),
        _S.RUNNING: Already(),
        _S.PAUSING: Wait(),
        _S.PAUSED: Start(_S.RESUMING),
        _S.RESUMING: Join(),
        _S.SNAPSHOTTING: Already(),
        _S.FORKING: Already(),
        _S.ROLLING_BACK: Wait(),
        _S.STOPPING: Missing(),
    },
    Verb.SNAPSHOT: _NEEDS_RUNNING | {_S.RUNNING: Start(_S.SNAPSHOTTING)},
    Verb.FORK: _NEEDS_RUNNING | {_S.RUNNING: Start(_S.FORKING)},
    Verb.ROLLBACK: _NEEDS_RUNNING | {_S.RUNNING: Start(_S.ROLLING_BACK)},
    Verb.LAPSE: {
        **dict.fromkeys(_S, Wait()),
        ABSENT: Missing(),
        _S.STARTING: Missing(),
        _S.RUNNING: Start(_S.PAUSING),
        _S.PAUSED: Already(),
        _S.STOPPING: Missing(),
    },
}

_FINISH: Final[dict[tuple[Verb, Outcome], Place]] = {
    (Verb.CREATE, Outcome.DONE): _S.RUNNING,
    (Verb.CREATE, Outcome.ROLLED_BACK): ABSENT,
    (Verb.CREATE, Outcome.LOST): ABSENT,
    (Verb.KILL, Outcome.DONE): ABSENT,
    (Verb.KILL, Outcome.LOST): ABSENT,
    (Verb.PAUSE, Outcome.DONE): _S.PAUSED,
    (Verb.PAUSE, Outcome.ROLLED_BACK): _S.RUNNING,
    (Verb.RESUME, Outcome.DONE): _S.RUNNING,
    (Verb.RESUME, Outcome.ROLLED_BACK): _S.PAUSED,
    (Verb.SNAPSHOT, Outcome.DONE): _S.RUNNING,
    (Verb.SNAPSHOT, Outcome.ROLLED_BACK): _S.RUNNING,
    (Verb.FORK, Outcome.DONE): _S.RUNNING,
    (Verb.FORK, Outcome.ROLLED_BACK): _S.RUNNING,
    (Verb.ROLLBACK, Outcome.DONE): _S.RUNNING,
    (Verb.ROLLBACK, Outcome.ROLLED_BACK): _S.RUNNING,
    # The old machine is gone and the chosen snapshot could not be started: it is what the sandbox is now.
    (Verb.ROLLBACK, Outcome.LAPSED): _S.PAUSED,
    (Verb.LAPSE, Outcome.DONE): _S.PAUSED,
    (Verb.LAPSE, Outcome.ROLLED_BACK): _S.RUNNING,
}


def begin(place: Place, verb: Verb) -> Decision:
    """Return what `verb` may do to a sandbox that is in `place`. Total: every pair has an answer."""
    return _BEGIN[verb][place]


def finish(verb: Verb, outcome: Outcome) -> Place:
    """Return where a sandbox is after `verb` ended with `outcome`."""
    try:
        return _FINISH[verb, outcome]
    except KeyError:
        raise Bug(f"{verb} cannot end as {outcome}") from None
