"""The error tree that every package grows from. Owns the kinds; knows no status codes.

AgentEnvError
├── Invalid        the caller's words cannot be obeyed
├── Unauthorised   the caller has not proven who it is
├── NotFound       the thing named does not exist
├── Conflict       the thing exists, but not in a state that allows this
├── Exhausted      a limit is reached; trying later can help
├── Unavailable    a part we need does not answer
├── TimedOut       a deadline passed
├── Corrupt        stored bytes are not what they must be
└── Bug            we broke our own rule
"""

from enum import StrEnum
from typing import ClassVar


class Kind(StrEnum):
    """What an error means to whoever has to answer for it; `api` maps it to a status."""

    INVALID = "invalid"
    UNAUTHORISED = "unauthorised"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    EXHAUSTED = "exhausted"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    CORRUPT = "corrupt"
    BUG = "bug"


class AgentEnvError(Exception):
    """Root of all our errors.

    `message` says what failed, on what, and what to do; it is safe to show to a client.
    `code` is a stable word for programs. `retry_after_seconds` is set where waiting helps.
    """

    kind: ClassVar[Kind] = Kind.BUG
    code: str = "internal_error"

    def __init__(self, message: str, *, code: str | None = None, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        if code is not None:
            self.code = code


class Invalid(AgentEnvError):
    """The caller's words cannot be obeyed."""

    kind = Kind.INVALID
    code = "invalid"


class Unauthorised(AgentEnvError):
    """The caller has not proven who it is."""

    kind = Kind.UNAUTHORISED
    code = "unauthorised"


class NotFound(AgentEnvError):
    """The thing named does not exist."""

    kind = Kind.NOT_FOUND
    code = "not_found"


class Conflict(AgentEnvError):
    """The thing exists, but not in a state that allows this."""

    kind = Kind.CONFLICT
    code = "conflict"


class Exhausted(AgentEnvError):
    """A limit is reached; trying later can help."""

    kind = Kind.EXHAUSTED
    code = "exhausted"


class Unavailable(AgentEnvError):
    """A part we need does not answer."""

    kind = Kind.UNAVAILABLE
    code = "unavailable"


class TimedOut(AgentEnvError):
    """A deadline passed."""

    kind = Kind.TIMEOUT
    code = "timeout"


class Corrupt(AgentEnvError):
    """Stored bytes are not what they must be."""

    kind = Kind.CORRUPT
    code = "corrupt"


class Bug(AgentEnvError):
    """We broke our own rule."""

    kind = Kind.BUG
    code = "internal_error"
