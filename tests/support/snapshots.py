"""Builders of manifests, and repositories over whatever store a test brings."""

import hashlib
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agentenv.base import ids
from agentenv.base.clock import Clock
from agentenv.base.ids import SnapshotId, TemplateId
from agentenv.objects.base import ObjectStore
from agentenv.snapshots.base import BootFacts, FileRecord, SnapshotKind, SnapshotManifest
from agentenv.snapshots.compaction import Merger
from agentenv.snapshots.opening import Parts, assemble
from agentenv.snapshots.repository import SharedRepository
from agentenv.snapshots.settings import SnapshotsSettings
from agentenv.vmm.base import Accelerator, MachineFacts

TEMPLATE = TemplateId("base0000000000000000")
SANDBOX = ids.new_sandbox_id()
FACTS = MachineFacts("qemu", "7.2", Accelerator.TCG, "x86_64", "max", "0" * 8)
_moments = itertools.count()


def record_of(content: bytes) -> FileRecord:
    return FileRecord(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def make_manifest(*disk: bytes, memory: tuple[bytes, ...] = (), **changes: Any) -> SnapshotManifest:
    """A snapshot whose disk layers hold `disk`; later ones are newer."""
    created_at = changes.pop("created_at", datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(_moments)))
    manifest = SnapshotManifest(
        snapshot_id=ids.new_snapshot_id(created_at),
        kind=SnapshotKind.SNAPSHOT,
        parent_id=None,
        sandbox_id=SANDBOX,
        template_id=TEMPLATE,
        created_at=created_at,
        vcpus=2,
        memory_mib=512,
        disk_size_bytes=1 << 30,
        disk_layers=tuple(map(record_of, disk)),
        memory_layers=tuple(map(record_of, memory)),
        device_state=record_of(b"state of " + b"".join(memory)) if memory else None,
        machine=FACTS if memory else None,
        boot=BootFacts({"LANG": "C.UTF-8"}, "user", None),
        envd_version="0.6.13",
    )
    return replace(manifest, **changes)


async def publish(repository: SharedRepository, *disk: bytes, **changes: Any) -> SnapshotManifest:
    """Publish a snapshot whose every file is brought along."""
    memory = changes.pop("memory", ())
    manifest = make_manifest(*disk, memory=memory, **changes)
    contents = [*disk, *memory, *([b"state of " + b"".join(memory)] if memory else [])]
    await repository.publish(manifest, await write_files(repository, manifest.snapshot_id, contents))
    return manifest


async def write_files(repository: SharedRepository, snapshot_id: SnapshotId, contents: list[bytes]) -> dict[str, Path]:
    directory = await repository.incoming(snapshot_id)
    files = {}
    for number, content in enumerate(contents):
        path = directory / str(number)
        path.write_bytes(content)
        files[record_of(content).digest] = path
    return files


class JoiningMerger:
    """Puts contents one behind the other, and counts what it wrote; keeps the size of layers that show nothing new."""

    def __init__(self) -> None:
        self.merges: list[list[bytes]] = []
        self.written_bytes = 0

    async def merge(self, layers: Sequence[Path], output: Path) -> FileRecord:
        contents = [path.read_bytes() for path in layers]
        output.write_bytes(b"".join(contents))
        self.merges.append(contents)
        self.written_bytes += output.stat().st_size
        return record_of(b"".join(contents))


@asynccontextmanager
async def open_parts(
    store: ObjectStore,
    local: Path,
    clock: Clock,
    *,
    node: str = "node-a",
    merger: Merger | None = None,
    **settings: Any,
) -> AsyncIterator[Parts]:
    chosen = SnapshotsSettings(**({"grace_seconds": 100} | settings))
    async with assemble(store, chosen, local=local, node=node, clock=clock, merger=merger or JoiningMerger()) as parts:
        await parts.refresh.run()
        yield parts
