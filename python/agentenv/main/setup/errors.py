"""Errors of `setup`.

AgentEnvError
├── Invalid
│   └── HostUnknown     a distribution whose packages are not known here
└── Unavailable
    ├── SetupFailed     a step could not be done
    └── NeedsNetwork    a step would have to download, which `--offline` forbids
"""

from agentenv.base.errors import Invalid, Unavailable


class HostUnknown(Invalid):
    """A distribution whose packages are not known here."""

    code = "host_unknown"


class SetupFailed(Unavailable):
    """A step could not be done."""

    code = "setup_failed"


class NeedsNetwork(Unavailable):
    """A step would have to download, which `--offline` forbids."""

    code = "setup_needs_network"
