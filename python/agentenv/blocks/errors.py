"""What can go wrong with disks.

AgentEnvError
├── Invalid
│   └── BaseRefused      a base that no disk can stand on
├── Unavailable
│   └── DiskNotWritten   the host's file system did not take a new disk, or did not give up an old one
└── Corrupt
    └── DiskDamaged      a disk file that is not what we wrote
"""

from agentenv.base.errors import Corrupt, Invalid, Unavailable


class BaseRefused(Invalid):
    """A base that no disk can stand on."""

    code = "base_refused"


class DiskNotWritten(Unavailable):
    """The host's file system did not take a new disk, or did not give up an old one."""

    code = "disk_not_written"


class DiskDamaged(Corrupt):
    """A disk file that is not what we wrote."""

    code = "disk_damaged"
