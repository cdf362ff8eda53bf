"""The stored form of manifests. Owns its version and bounds; reading is total, for stored bytes are untrusted."""

import json
import re
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from agentenv.base.ids import SnapshotId, parse_sandbox_id, parse_snapshot_id
from agentenv.blocks.base import FileLayer
from agentenv.snapshots import names
from agentenv.snapshots.base import FileRecord, LayerRef, SnapshotManifest
from agentenv.snapshots.errors import ManifestInvalid, NameInvalid, SnapshotDamaged

FORMAT = 1
LIMIT_BYTES = 4 * 1024 * 1024
MAX_LAYERS = 254
"""One less than the format of stacks allows, because a writable layer goes on top."""
_MAX_NAMES = 64
_MAX_BYTES = 1 << 62
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DIGESTS = re.compile(rb"sha256:[0-9a-f]{64}")
_ADAPTER = TypeAdapter(with_config(ConfigDict(extra="forbid"))(SnapshotManifest))


def encode(manifest: SnapshotManifest) -> bytes:
    """Return the stored form. Raises `ManifestInvalid` when it could not be read back."""
    problem = _find_problem(manifest)
    if problem is not None:
        raise ManifestInvalid(f"snapshot {manifest.snapshot_id} cannot be published: {problem}")
    content = json.dumps({"format": FORMAT, "manifest": _ADAPTER.dump_python(manifest, mode="json")}, indent=1).encode()
    if len(content) > LIMIT_BYTES:
        raise ManifestInvalid(f"snapshot {manifest.snapshot_id} cannot be published: its manifest is too large")
    return content


def decode(snapshot_id: SnapshotId, content: bytes) -> SnapshotManifest:
    """Return the manifest in the stored form. Raises `SnapshotDamaged`."""
    try:
        document = json.loads(content[: LIMIT_BYTES + 1])
        manifest = _ADAPTER.validate_python(_unwrap(document), strict=False)
    except (ValidationError, ValueError, RecursionError) as error:
        raise SnapshotDamaged(f"the manifest of snapshot {snapshot_id} cannot be read: {_first(error)}") from error
    problem = _find_problem(manifest)
    if problem is None and manifest.snapshot_id != snapshot_id:
        problem = f"it belongs to {manifest.snapshot_id}"
    if problem is not None:
        raise SnapshotDamaged(f"the manifest of snapshot {snapshot_id} cannot be used: {problem}")
    return manifest


def is_same(one: SnapshotManifest, other: SnapshotManifest) -> bool:
    """Return whether two manifests are of the same snapshot; one whose layers were merged still is."""
    return replace(one, disk_layers=other.disk_layers, memory_layers=other.memory_layers) == other


def find_digests(content: bytes) -> frozenset[str]:
    """Return everything in a stored manifest that may name a file, also when the manifest cannot be understood.

    So what a damaged manifest, or one of a newer program, needs is not collected.
    """
    return frozenset(found.decode() for found in _DIGESTS.findall(content))


def _unwrap(document: Any) -> Any:
    if not isinstance(document, dict) or "manifest" not in document:
        raise ValueError("it is not a manifest")
    if document.get("format") != FORMAT:
        raise ValueError(f"it has format {str(document.get('format'))[:16]}, this program knows {FORMAT}")
    return document["manifest"]


def _first(error: ValidationError | ValueError | RecursionError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _find_problem(manifest: SnapshotManifest) -> str | None:
    checks = (_find_bad_id, _find_bad_size, _find_bad_layer, _find_bad_name, _find_contradiction)
    return next((problem for check in checks if (problem := check(manifest)) is not None), None)


def _find_bad_id(manifest: SnapshotManifest) -> str | None:
    if parse_snapshot_id(manifest.snapshot_id) is None:
        return "its id is not that of a snapshot"
    if manifest.parent_id is not None and parse_snapshot_id(manifest.parent_id) is None:
        return "its parent's id is not that of a snapshot"
    if parse_sandbox_id(manifest.sandbox_id) != manifest.sandbox_id:
        return "its sandbox's id is not that of a sandbox"
    return None


def _find_bad_size(manifest: SnapshotManifest) -> str | None:
    if not (1 <= manifest.vcpus <= 1024 and 1 <= manifest.memory_mib <= 1 << 24):
        return "its resources are out of bounds"
    if not 1 <= manifest.disk_size_bytes <= _MAX_BYTES:
        return "its disk's size is out of bounds"
    if any(not 0 <= record.size_bytes <= _MAX_BYTES for record in manifest.records()):
        return "a file's size is out of bounds"
    return "its time has no zone" if manifest.created_at.tzinfo is None else None


def _find_bad_layer(manifest: SnapshotManifest) -> str | None:
    if not 1 <= len(manifest.disk_layers) <= MAX_LAYERS or len(manifest.memory_layers) > MAX_LAYERS:
        return f"it has {len(manifest.disk_layers)} disk and {len(manifest.memory_layers)} memory layers"
    bad = next((layer for layer in manifest.disk_layers if not _is_layer(layer)), None)
    if bad is not None:
        return f"a layer of kind {bad.kind} is not well-formed"
    if any(_DIGEST.fullmatch(record.digest) is None for record in manifest.records()):
        return "a digest is not well-formed"
    return None


def _is_layer(layer: LayerRef) -> bool:
    if isinstance(layer, FileLayer):
        is_named = layer.digest is None or _DIGEST.fullmatch(layer.digest) is not None
        return is_named and layer.path.is_absolute() and ".." not in layer.path.parts
    if isinstance(layer, FileRecord):
        return True
    return _DIGEST.fullmatch(layer.digest) is not None and 0 < layer.size_bytes <= _MAX_BYTES


def _find_bad_name(manifest: SnapshotManifest) -> str | None:
    if len(manifest.names) > _MAX_NAMES:
        return f"it has more than {_MAX_NAMES} names"
    try:
        return None if all(names.canonical(name) == name for name in manifest.names) else "a name is not canonical"
    except NameInvalid as error:
        return error.message


def _find_contradiction(manifest: SnapshotManifest) -> str | None:
    memory = (bool(manifest.memory_layers), manifest.device_state is not None, manifest.machine is not None)
    return None if len(set(memory)) == 1 else "it has a part of a memory, but not the whole"
