"""What can go wrong between this client and a server or a sandbox. Owns the tree; knows no exit codes.

AgentEnvError
├── Invalid
│   ├── SettingsInvalid     a flag, a variable or the configuration file cannot be obeyed
│   └── RequestRefused      the other side refuses the request as it stands
├── Unauthorised
│   ├── KeyMissing          no API key is known for this server
│   └── AccessRefused       the key or the sandbox's token is not accepted
├── NotFound
│   ├── SandboxNotFound     no sandbox, or no template, of that name
│   └── ProcessNotFound     no such process in the sandbox
├── Conflict
│   ├── StateConflict       the thing is not in a state that allows this
│   └── InputClosed         the process takes no input any more
├── Exhausted
│   └── LimitReached        the server has no room or takes no more requests now
├── Unavailable
│   ├── ServerUnreachable   nothing answers at the address
│   ├── ServerFailed        the server answers, but cannot do its work
│   ├── SandboxGone         the sandbox was killed, is paused, or reached its end of life
│   └── StreamLost          a stream broke before its end
├── TimedOut
│   ├── RequestTimedOut     no answer in time
│   └── CommandTimedOut     the command was killed at its own deadline
└── Corrupt
    └── AnswerInvalid       the answer is not what the contract promises
"""

from agentenv.base.errors import (
    Conflict,
    Corrupt,
    Exhausted,
    Invalid,
    NotFound,
    TimedOut,
    Unauthorised,
    Unavailable,
)


class SettingsInvalid(Invalid):
    """A flag, a variable or the configuration file cannot be obeyed."""

    code = "settings_invalid"


class RequestRefused(Invalid):
    """The other side refuses the request as it stands."""

    code = "request_refused"


class KeyMissing(Unauthorised):
    """No API key is known for this server."""

    code = "key_missing"


class AccessRefused(Unauthorised):
    """The key or the sandbox's token is not accepted."""

    code = "access_refused"


class SandboxNotFound(NotFound):
    """No sandbox, or no template, of that name."""

    code = "sandbox_not_found"


class ProcessNotFound(NotFound):
    """No such process in the sandbox."""

    code = "process_not_found"


class StateConflict(Conflict):
    """The thing is not in a state that allows this."""

    code = "state_conflict"


class InputClosed(Conflict):
    """The process takes no input any more."""

    code = "input_closed"


class LimitReached(Exhausted):
    """The server has no room or takes no more requests now."""

    code = "limit_reached"


class ServerUnreachable(Unavailable):
    """Nothing answers at the address."""

    code = "server_unreachable"


class ServerFailed(Unavailable):
    """The server answers, but cannot do its work."""

    code = "server_failed"


class SandboxGone(Unavailable):
    """The sandbox was killed, is paused, or reached its end of life."""

    code = "sandbox_gone"


class StreamLost(Unavailable):
    """A stream broke before its end."""

    code = "stream_lost"


class RequestTimedOut(TimedOut):
    """No answer in time."""

    code = "request_timed_out"


class CommandTimedOut(TimedOut):
    """The command was killed at its own deadline."""

    code = "command_timed_out"


class AnswerInvalid(Corrupt):
    """The answer is not what the contract promises."""

    code = "answer_invalid"
