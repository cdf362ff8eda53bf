"""A finished capture as a snapshot: which of its layers are new, and what the repository is told."""

import asyncio
import hashlib
import json
from datetime import datetime
from pathlib import Path

from agentenv.base.ids import SnapshotId
from agentenv.blocks.base import FileLayer, LayerSource
from agentenv.orchestrator.base import PauseFacts
from agentenv.orchestrator.record import Checkpoint, SandboxRecord
from agentenv.runtime.base import Captured
from agentenv.snapshots.base import FileRecord, SnapshotKind, SnapshotManifest


async def describe(
    record: SandboxRecord,
    captured: Captured,
    *,
    stands_on: tuple[FileRecord, ...],
    snapshot_id: SnapshotId,
    kind: SnapshotKind,
    names: tuple[str, ...],
    now: datetime,
    directory: Path,
) -> tuple[SnapshotManifest, dict[str, Path]]:
    """Return the manifest of a capture, and its new files by digest; all of them lie in `directory`.

    `stands_on` are the memory layers that the captured one is a change of.
    """
    assert record.boot is not None, "a sandbox of a program that could not pause was captured"
    sandbox, basis = record.sandbox, record.basis
    files: dict[str, Path] = {}
    known = len(basis.disk_layers)
    new_layers = [
        await asyncio.to_thread(_take_layer, layer, captured, directory, files)
        for layer in captured.stack.layers[known:]
    ]
    memory_layers: tuple[FileRecord, ...] = ()
    device_state = None
    if captured.memory is not None and captured.device_state is not None:
        memory = captured.memory
        files[memory.digest] = memory.memory_layer
        memory_layers = (*stands_on, FileRecord(memory.digest, memory.size_bytes))
        device_state = await asyncio.to_thread(_take_small_file, captured.device_state, files)
    manifest = SnapshotManifest(
        snapshot_id=snapshot_id,
        kind=kind,
        names=names,
        parent_id=basis.parent_id,
        sandbox_id=sandbox.id,
        template_id=sandbox.template_id,
        created_at=now,
        vcpus=sandbox.vcpus,
        memory_mib=sandbox.memory_mib,
        disk_size_bytes=captured.stack.size_bytes,
        disk_layers=(*basis.disk_layers, *new_layers),
        memory_layers=memory_layers,
        device_state=device_state,
        machine=None if captured.memory is None else captured.memory.facts,
        boot=record.boot,
        envd_version=sandbox.envd_version,
        config=json.dumps({"token": sandbox.envd_token, "guest_answered": captured.guest_answered}),
    )
    return manifest, files


def checkpoint_of(manifest: SnapshotManifest) -> Checkpoint:
    """Return a snapshot as the checkpoint of its sandbox."""
    try:
        guest_answered = json.loads(manifest.config)["guest_answered"] is not False
    except (ValueError, KeyError, TypeError):
        guest_answered = True
    facts = PauseFacts(with_memory=manifest.device_state is not None, guest_answered=guest_answered)
    return Checkpoint(manifest.snapshot_id, facts)


def _take_layer(layer: LayerSource, captured: Captured, directory: Path, files: dict[str, Path]) -> FileRecord:
    """Layers of captures that came to nothing are still layers of the disk: they are published with the next one.

    The disk has names of its own for its layers, and keeps them; the repository is given others.
    """
    assert isinstance(layer, FileLayer) and layer.digest is not None, "a layer that was sealed here"  # noqa: PT018
    if layer.digest == captured.layer.digest:
        files[layer.digest] = captured.layer.path
        return FileRecord(layer.digest, captured.layer.size_bytes)
    if layer.digest not in files:
        link = directory / f"older-{len(files)}.layer"
        link.hardlink_to(layer.path)
        files[layer.digest] = link
    return FileRecord(layer.digest, layer.path.stat().st_size)


def _take_small_file(path: Path, files: dict[str, Path]) -> FileRecord:
    content = path.read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    files[digest] = path
    return FileRecord(digest, len(content))
