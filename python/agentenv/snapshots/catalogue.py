"""Manifests and names: cells of the store, with this node's index of them kept in step. Moves no files."""

import contextlib

from agentenv.base.clock import Clock
from agentenv.base.ids import SnapshotId
from agentenv.objects.base import Cell, ObjectStore, Version
from agentenv.objects.errors import CellChanged, CellDamaged, StoreUnavailable
from agentenv.snapshots import findings, names
from agentenv.snapshots import manifest as manifests
from agentenv.snapshots.access import Access
from agentenv.snapshots.base import SnapshotManifest
from agentenv.snapshots.errors import NameTaken, SnapshotDamaged, SnapshotExists, SnapshotNotFound
from agentenv.snapshots.findings import Finding, NameFinding, State
from agentenv.snapshots.index import Index

MANIFESTS = "manifests"
NAMES = "names"
_TRIES = 20


class Catalogue:
    """Invariant: a manifest's cell, once buried, is never written again, so a deleted snapshot stays deleted."""

    def __init__(self, store: ObjectStore, access: Access, clock: Clock) -> None:
        self._store = store
        self._access = access
        self._clock = clock

    async def inspect(self, snapshot_id: SnapshotId) -> Finding | None:
        """Return what a manifest's cell holds, or None when there is none."""
        try:
            cell = await self._store.read_cell(MANIFESTS, snapshot_id)
        except CellDamaged as error:
            version = await self._find_version(snapshot_id)
            return Finding(snapshot_id, version, State.DAMAGED, problem=error.message) if version else None
        return None if cell is None else findings.interpret(snapshot_id, cell)

    async def read(self, snapshot_id: SnapshotId) -> tuple[SnapshotManifest, Version]:
        """Return a manifest and its version. Raises `SnapshotNotFound` or `SnapshotDamaged`."""
        finding = await self.inspect(snapshot_id)
        if finding is None or finding.state is State.DELETED:
            raise _not_found(snapshot_id)
        if finding.manifest is None:
            raise SnapshotDamaged(finding.problem)
        return finding.manifest, finding.version

    async def create(self, manifest: SnapshotManifest) -> None:
        """Write a new manifest. The same one again is fine; raises `SnapshotExists` when the id is taken."""
        content = manifests.encode(manifest)
        try:
            version = await self._store.write_cell(MANIFESTS, manifest.snapshot_id, content, expected=None)
        except CellChanged:
            finding = await self.inspect(manifest.snapshot_id)
            if finding is None or finding.manifest is None or not manifests.is_same(finding.manifest, manifest):
                raise SnapshotExists(f"snapshot {manifest.snapshot_id} exists already, or was deleted") from None
            await self._remember(finding)
        else:
            await self._remember(findings.interpret(manifest.snapshot_id, Cell(content, version)))

    async def replace(self, manifest: SnapshotManifest, expected: Version) -> None:
        """Write a manifest that has other layers of the same content. Raises `CellChanged`."""
        content = manifests.encode(manifest)
        version = await self._store.write_cell(MANIFESTS, manifest.snapshot_id, content, expected=expected)
        await self._remember(findings.interpret(manifest.snapshot_id, Cell(content, version)))

    async def bury(self, snapshot_id: SnapshotId) -> None:
        """Make a snapshot not exist any more, whatever its cell holds. Raises `SnapshotNotFound`."""
        for _ in range(_TRIES):
            version = await self._version_to_bury(snapshot_id)
            try:
                version = await self._store.write_cell(MANIFESTS, snapshot_id, findings.BURIED, expected=version)
            except CellChanged:
                continue
            await self._remember(Finding(snapshot_id, version, State.DELETED))
            return
        raise SnapshotExists(f"snapshot {snapshot_id} changes faster than it can be deleted; try again")

    async def _version_to_bury(self, snapshot_id: SnapshotId) -> Version:
        try:
            finding = await self.inspect(snapshot_id)
        except StoreUnavailable:
            # A file that the disk cannot read any more must not stand in the way of its deletion.
            version = await self._find_version(snapshot_id)
        else:
            version = None if finding is None or finding.state is State.DELETED else finding.version
        if version is None:
            raise _not_found(snapshot_id)
        return version

    async def _find_version(self, snapshot_id: SnapshotId) -> Version | None:
        return (await self._store.cells(MANIFESTS)).get(snapshot_id)

    async def holder_of(self, name: str) -> SnapshotId | None:
        """Return who has a canonical name."""
        finding = await self._inspect_name(name)
        return None if finding is None else finding.snapshot_id

    async def _inspect_name(self, name: str) -> NameFinding | None:
        key = names.to_key(name)
        cell = await self._store.read_cell(NAMES, key)
        return None if cell is None else findings.interpret_name(key, cell)

    async def point(self, name: str, snapshot_id: SnapshotId | None, *, expected: SnapshotId | None) -> None:
        """Give a canonical name to a snapshot if `expected` has it. Raises `NameTaken`."""
        finding = await self._inspect_name(name)
        holder = None if finding is None else finding.snapshot_id
        if holder != expected:
            raise NameTaken(f"the name '{name}' belongs to {f'snapshot {holder}' if holder else 'no snapshot'} now")
        if holder == snapshot_id:
            return
        key, content = names.to_key(name), findings.encode_holder(snapshot_id)
        try:
            expected_version = None if finding is None else finding.version
            version = await self._store.write_cell(NAMES, key, content, expected=expected_version)
        except CellChanged:
            raise NameTaken(f"the name '{name}' was given to another snapshot just now") from None
        await self._access.change(Index.put_names, (NameFinding(key, version, snapshot_id),))

    async def move(self, name: str, snapshot_id: SnapshotId) -> None:
        """Give a canonical name to a snapshot, whoever has it."""
        for _ in range(_TRIES):
            try:
                await self.point(name, snapshot_id, expected=await self.holder_of(name))
            except NameTaken:
                continue
            return
        raise NameTaken(f"the name '{name}' changes faster than it can be given; try again")

    async def drop_dangling(self, name: str) -> None:
        """Take a name from a snapshot that is gone; nothing when it is there after all."""
        holder = await self.holder_of(name)
        if holder is not None:
            finding = await self.inspect(holder)
            if finding is None or finding.state is State.DELETED:
                with contextlib.suppress(NameTaken):
                    await self.point(name, None, expected=holder)

    async def _remember(self, finding: Finding) -> None:
        await self._access.change(Index.put, (finding,), self._clock.now().timestamp())


def _not_found(snapshot_id: SnapshotId) -> SnapshotNotFound:
    return SnapshotNotFound(f"snapshot '{snapshot_id}' not found")
