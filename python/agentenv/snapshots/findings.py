"""What is found in cells of the repository: manifests whole, damaged or buried, and holders of names. Pure."""

import json
import secrets
from dataclasses import dataclass
from enum import StrEnum

from agentenv.base.ids import SnapshotId, parse_snapshot_id
from agentenv.objects.base import Cell, Version
from agentenv.snapshots import manifest as manifests
from agentenv.snapshots.base import SnapshotManifest
from agentenv.snapshots.errors import SnapshotDamaged

BURIED = b""
"""The content of a deleted snapshot's cell; it stays for a while, so that nobody writes the manifest again."""


class State(StrEnum):
    """What a manifest's cell holds."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Finding:
    """A manifest's cell. `digests` may name files, also when the manifest cannot be read, as `problem` then says."""

    snapshot_id: SnapshotId
    version: Version
    state: State
    manifest: SnapshotManifest | None = None
    digests: frozenset[str] = frozenset()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NameFinding:
    """A name's cell. Nobody has the name when it says so, and also when it cannot be understood."""

    key: str
    version: Version
    snapshot_id: SnapshotId | None


def interpret(snapshot_id: SnapshotId, cell: Cell) -> Finding:
    """Return what a manifest's cell holds."""
    if cell.content == BURIED:
        return Finding(snapshot_id, cell.version, State.DELETED)
    digests = manifests.find_digests(cell.content)
    try:
        manifest = manifests.decode(snapshot_id, cell.content)
    except SnapshotDamaged as error:
        return Finding(snapshot_id, cell.version, State.DAMAGED, None, digests, error.message)
    return Finding(snapshot_id, cell.version, State.WHOLE, manifest, digests)


def interpret_name(key: str, cell: Cell) -> NameFinding:
    """Return who has a name."""
    try:
        holder = json.loads(cell.content)["snapshot_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        holder = None
    return NameFinding(key, cell.version, parse_snapshot_id(holder) if isinstance(holder, str) else None)


def encode_holder(snapshot_id: SnapshotId | None) -> bytes:
    """Return the content of a name's cell. The nonce tells one giving of a name from the next to whoever looks."""
    return json.dumps({"snapshot_id": snapshot_id, "nonce": secrets.token_hex(8)}).encode()
