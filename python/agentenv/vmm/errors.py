"""What can go wrong with virtual machine monitors.

AgentEnvError
├── Invalid
│   └── MachineRefused      a machine that no driver could start as described
├── Conflict
│   └── SnapshotUnfit       a saved machine that cannot go on here, and why
└── Unavailable
    ├── BootFailed          the monitor did not come to run its machine; nothing of it is left
    ├── MonitorLost         the monitor's control connection ended, timed out or spoke nonsense
    ├── CommandRefused      the monitor answered a command with an error
    ├── CaptureFailed       the state of a machine could not be taken or kept; the machine is as before
    └── NoAccelerator       no guest could be started on this host in any allowed way
"""

from agentenv.base.errors import Conflict, Invalid, Unavailable


class MachineRefused(Invalid):
    """A machine that no driver could start as described."""

    code = "machine_refused"


class SnapshotUnfit(Conflict):
    """A saved machine that cannot go on here, and why."""

    code = "snapshot_unfit"


class BootFailed(Unavailable):
    """The monitor did not come to run its machine; nothing of it is left."""

    code = "boot_failed"


class MonitorLost(Unavailable):
    """The monitor's control connection ended, timed out or spoke nonsense."""

    code = "monitor_lost"


class CommandRefused(Unavailable):
    """The monitor answered a command with an error."""

    code = "monitor_command_refused"


class CaptureFailed(Unavailable):
    """The state of a machine could not be taken or kept; the machine is as before."""

    code = "capture_failed"


class NoAccelerator(Unavailable):
    """No guest could be started on this host in any allowed way."""

    code = "no_accelerator"
