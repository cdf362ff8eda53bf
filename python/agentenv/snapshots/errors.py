"""Errors of `snapshots`.

AgentEnvError
├── Invalid
│   └── NameInvalid             no snapshot can have this name
├── NotFound
│   └── SnapshotNotFound        no snapshot has this id or name
├── Conflict
│   ├── NameTaken               another snapshot has the name
│   └── SnapshotExists          the id belongs to another snapshot
├── Exhausted
│   └── RepositoryFull          the storage of the repository takes no more
├── Unavailable
│   └── RepositoryUnavailable   the storage of the repository does not answer, or refuses
└── Corrupt
    └── SnapshotDamaged         a file of a snapshot is missing, or not what was stored
"""

from agentenv.base.errors import Conflict, Corrupt, Exhausted, Invalid, NotFound, Unavailable


class NameInvalid(Invalid):
    """No snapshot can have this name."""

    code = "snapshot_name_invalid"


class SnapshotNotFound(NotFound):
    """No snapshot has this id or name."""

    code = "snapshot_not_found"


class NameTaken(Conflict):
    """Another snapshot has the name."""

    code = "snapshot_name_taken"


class SnapshotExists(Conflict):
    """The id belongs to another snapshot."""

    code = "snapshot_exists"


class RepositoryFull(Exhausted):
    """The storage of the repository takes no more."""

    code = "snapshot_repository_full"


class RepositoryUnavailable(Unavailable):
    """The storage of the repository does not answer, or refuses."""

    code = "snapshot_repository_unavailable"


class SnapshotDamaged(Corrupt):
    """A file of a snapshot is missing, or not what was stored; the message names the snapshot's file."""

    code = "snapshot_damaged"
