"""Errors of `snapshots`.

AgentEnvError
├── Invalid
│   ├── NameInvalid             no snapshot can have this name
│   └── ManifestInvalid         a manifest that could not be read back must not be published
├── NotFound
│   └── SnapshotNotFound        no snapshot has this id or name
├── Conflict
│   ├── NameTaken               another snapshot has the name
│   └── SnapshotExists          the id belongs to another snapshot
└── Corrupt
    └── SnapshotDamaged         a file of a snapshot is missing, or not what was stored

What the storage itself says (`StoreUnavailable`, `StoreFull`) comes from `objects` and passes through.
"""

from agentenv.base.errors import Conflict, Corrupt, Invalid, NotFound


class NameInvalid(Invalid):
    """No snapshot can have this name."""

    code = "snapshot_name_invalid"


class ManifestInvalid(Invalid):
    """A manifest that could not be read back must not be published."""

    code = "snapshot_manifest_invalid"


class SnapshotNotFound(NotFound):
    """No snapshot has this id or name."""

    code = "snapshot_not_found"


class NameTaken(Conflict):
    """Another snapshot has the name."""

    code = "snapshot_name_taken"


class SnapshotExists(Conflict):
    """The id belongs to another snapshot."""

    code = "snapshot_exists"


class SnapshotDamaged(Corrupt):
    """A file of a snapshot is missing, or not what was stored; the message names the snapshot's file."""

    code = "snapshot_damaged"
