"""What can go wrong with disks, and with the layers that they are made of.

AgentEnvError
├── Invalid
│   ├── BaseRefused         a base that no disk can stand on
│   ├── BlocksRefused       the block daemon cannot obey what was asked
│   ├── LayerRefused        work on layers cannot be done as it was asked for
│   ├── LayerUnsupported    a layer has parts that are not read here
│   └── LayerTooLarge       a layer has a number above what we are willing to hold
├── NotFound
│   ├── DiskAbsent          there is no disk, image or seal of this name
│   └── LayerMissing        the file of a layer does not exist
├── Conflict
│   ├── BlocksConflict      the disk is not in a state that allows this, or is still in use
│   └── LayerExists         a file to be made is there already
├── Exhausted
│   └── DiskSpaceShort      the host's file system, or a limit of the block daemon, has no room for one more
├── Unavailable
│   ├── DiskNotWritten      the host's file system did not take a new disk, or did not give up an old one
│   ├── DaemonUnprepared    the block daemon's program is not there
│   ├── DaemonGone          the block daemon does not run, or did not start
│   ├── SourceUnavailable   the block daemon cannot reach something that it needs
│   └── LayerFileFailed     the host's file system refused something on the file of a layer
├── TimedOut
│   └── DaemonSilent        the block daemon did not answer in time
├── Corrupt
│   └── DiskDamaged         a disk or a layer is not what was written
└── Bug
    ├── DaemonBroken        the block daemon broke its own rule, or the protocol
    └── LayerWorkBroken     work on layers met a state that it holds to be impossible
"""

from agentenv.base.errors import (
    AgentEnvError,
    Bug,
    Conflict,
    Corrupt,
    Exhausted,
    Invalid,
    Kind,
    NotFound,
    TimedOut,
    Unavailable,
)


class BaseRefused(Invalid):
    """A base that no disk can stand on."""

    code = "base_refused"


class BlocksRefused(Invalid):
    """The block daemon cannot obey what was asked."""

    code = "blocks_refused"


class LayerRefused(Invalid):
    """Work on layers cannot be done as it was asked for."""

    code = "layer_refused"


class LayerUnsupported(Invalid):
    """A layer has parts that are not read here."""

    code = "layer_unsupported"


class LayerTooLarge(Invalid):
    """A layer has a number above what we are willing to hold."""

    code = "layer_too_large"


class DiskAbsent(NotFound):
    """There is no disk, image or seal of this name."""

    code = "disk_absent"


class LayerMissing(NotFound):
    """The file of a layer does not exist."""

    code = "layer_missing"


class BlocksConflict(Conflict):
    """The disk is not in a state that allows this, or is still in use."""

    code = "disk_conflict"


class LayerExists(Conflict):
    """A file to be made is there already."""

    code = "layer_exists"


class DiskSpaceShort(Exhausted):
    """The host's file system, or a limit of the block daemon, has no room for one more."""

    code = "disk_space_short"


class DiskNotWritten(Unavailable):
    """The host's file system did not take a new disk, or did not give up an old one."""

    code = "disk_not_written"


class DaemonUnprepared(Unavailable):
    """The block daemon's program is not there."""

    code = "block_daemon_unprepared"


class DaemonGone(Unavailable):
    """The block daemon does not run, or did not start."""

    code = "block_daemon_gone"


class SourceUnavailable(Unavailable):
    """The block daemon cannot reach something that it needs."""

    code = "block_source_unavailable"


class LayerFileFailed(Unavailable):
    """The host's file system refused something on the file of a layer."""

    code = "layer_file_failed"


class DaemonSilent(TimedOut):
    """The block daemon did not answer in time."""

    code = "block_daemon_silent"


class DiskDamaged(Corrupt):
    """A disk or a layer is not what was written."""

    code = "disk_damaged"


class DaemonBroken(Bug):
    """The block daemon broke its own rule, or the protocol."""

    code = "block_daemon_broken"


class LayerWorkBroken(Bug):
    """Work on layers met a state that it holds to be impossible."""

    code = "layer_work_broken"


# Codes of the daemon that callers tell apart; every other one is known by its kind alone.
IMAGE_IN_USE = "image_in_use"

_BY_KIND: dict[str, type[AgentEnvError]] = {
    Kind.INVALID: BlocksRefused,
    Kind.NOT_FOUND: DiskAbsent,
    Kind.CONFLICT: BlocksConflict,
    Kind.EXHAUSTED: DiskSpaceShort,
    Kind.UNAVAILABLE: SourceUnavailable,
    Kind.TIMEOUT: DaemonSilent,
    Kind.CORRUPT: DiskDamaged,
}


def from_daemon(kind: str, code: str, message: str) -> AgentEnvError:
    """Return the error that stands for an answer of the daemon; an unknown kind is its bug."""
    return _BY_KIND.get(kind, DaemonBroken)(message, code=code)
