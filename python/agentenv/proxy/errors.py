"""What can go wrong between a client and a guest's port.

AgentEnvError
├── Invalid
│   ├── RequestRefused      a request that could mean different things to us and to the guest
│   └── RequestBodyBroken   the client's body ended early or was malformed
├── Exhausted
│   └── ExchangesExhausted  the sandbox carries as many exchanges as it may
└── Unavailable
    ├── SandboxGone         the machine ended, or was replaced, while we spoke to it
    ├── PortClosed          the guest runs, and nothing listens on the port
    ├── GuestSilent         the guest did not take the connection in time
    └── GuestAnswerBroken   the program in the guest broke off, or does not speak HTTP/1
"""

from agentenv.base.errors import Exhausted, Invalid, Unavailable


class RequestRefused(Invalid):
    """A request that could mean different things to us and to the guest."""

    code = "request_refused"


class RequestBodyBroken(Invalid):
    """The client's body ended early or was malformed."""

    code = "request_body_broken"


class ExchangesExhausted(Exhausted):
    """The sandbox carries as many exchanges as it may."""

    code = "exchanges_exhausted"


class SandboxGone(Unavailable):
    """The machine ended, or was replaced, while we spoke to it."""

    code = "sandbox_gone"


class PortClosed(Unavailable):
    """The guest runs, and nothing listens on the port."""

    code = "port_closed"


class GuestSilent(Unavailable):
    """The guest did not take the connection in time."""

    code = "guest_silent"


class GuestAnswerBroken(Unavailable):
    """The program in the guest broke off, or does not speak HTTP/1."""

    code = "guest_answer_broken"
