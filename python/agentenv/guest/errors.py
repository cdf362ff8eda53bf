"""What can go wrong on the guest's side.

AgentEnvError
└── Unavailable
    ├── GuestUnreachable   the daemon in the guest does not answer
    └── GuestRefused       the daemon answered with an error, or with something the contract does not know
"""

from agentenv.base.errors import Unavailable


class GuestUnreachable(Unavailable):
    """The daemon in the guest does not answer."""

    code = "guest_unreachable"


class GuestRefused(Unavailable):
    """The daemon answered with an error, or with something the contract does not know."""

    code = "guest_refused"
