"""What can go wrong with virtual machine monitors.

AgentEnvError
├── Invalid
│   └── MachineRefused      a machine that no driver could start as described
└── Unavailable
    ├── BootFailed          the monitor did not come to run its machine; nothing of it is left
    ├── MonitorLost         the monitor's control connection ended, timed out or spoke nonsense
    ├── CommandRefused      the monitor answered a command with an error
    └── NoAccelerator       no guest could be started on this host in any allowed way
"""

from agentenv.base.errors import Invalid, Unavailable


class MachineRefused(Invalid):
    """A machine that no driver could start as described."""

    code = "machine_refused"


class BootFailed(Unavailable):
    """The monitor did not come to run its machine; nothing of it is left."""

    code = "boot_failed"


class MonitorLost(Unavailable):
    """The monitor's control connection ended, timed out or spoke nonsense."""

    code = "monitor_lost"


class CommandRefused(Unavailable):
    """The monitor answered a command with an error."""

    code = "monitor_command_refused"


class NoAccelerator(Unavailable):
    """No guest could be started on this host in any allowed way."""

    code = "no_accelerator"
