"""Manifests and names: cells of the store, with this node's index of them kept in step. Moves no files."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ParamSpec, TypeVar

from agentenv.base import aio
from agentenv.base.aio import BlockingPool
from agentenv.base.clock import Clock
from agentenv.base.ids import SnapshotId, parse_snapshot_id
from agentenv.objects.base import Cell, ObjectStore, Version
from agentenv.objects.errors import CellChanged, CellDamaged, StoreUnavailable
from agentenv.snapshots import manifest as manifests
from agentenv.snapshots import names
from agentenv.snapshots.base import SnapshotManifest
from agentenv.snapshots.errors import NameTaken, SnapshotDamaged, SnapshotExists, SnapshotNotFound
from agentenv.snapshots.index import Finding, Index, NameFinding, State

MANIFESTS = "manifests"
NAMES = "names"
_BURIED = b""
_READS_AT_ONCE = 8
_READ_CHUNK = 256
_TRIES = 20
_Parameters = ParamSpec("_Parameters")
_T = TypeVar("_T")


class Catalogue:
    """Invariant: a manifest's cell, once buried, is never written again, so a deleted snapshot stays deleted."""

    def __init__(self, store: ObjectStore, index: Index, pool: BlockingPool, clock: Clock) -> None:
        self._store = store
        self._index = index
        self._pool = pool
        self._clock = clock
        self._refreshing = asyncio.Lock()

    async def ask(
        self, question: Callable[_Parameters, _T], *arguments: _Parameters.args, **named: _Parameters.kwargs
    ) -> _T:
        """Put a question to the index."""
        return await self._pool.run(lambda: question(*arguments, **named))

    @property
    def index(self) -> Index:
        """What to put questions about."""
        return self._index

    async def read(self, snapshot_id: SnapshotId) -> tuple[SnapshotManifest, Version]:
        """Return a manifest and its version. Raises `SnapshotNotFound` or `SnapshotDamaged`."""
        finding, error = await self._inspect(snapshot_id)
        if finding is None or finding.state is State.DELETED:
            raise _not_found(snapshot_id)
        if finding.manifest is None:
            raise error or SnapshotDamaged(f"the manifest of snapshot {snapshot_id} cannot be read")
        return finding.manifest, finding.version

    async def create(self, manifest: SnapshotManifest) -> None:
        """Write a new manifest. The same one again is fine; raises `SnapshotExists` when the id is taken."""
        content = manifests.encode(manifest)
        try:
            version = await self._store.write_cell(MANIFESTS, manifest.snapshot_id, content, expected=None)
        except CellChanged:
            finding, _ = await self._inspect(manifest.snapshot_id)
            if finding is None or finding.manifest is None or not _is_same(finding.manifest, manifest):
                raise SnapshotExists(f"snapshot {manifest.snapshot_id} exists already, or was deleted") from None
            return
        await self._remember(manifest, version, content)

    async def replace(self, manifest: SnapshotManifest, expected: Version) -> None:
        """Write a manifest that has other layers of the same content. Raises `CellChanged`."""
        content = manifests.encode(manifest)
        version = await self._store.write_cell(MANIFESTS, manifest.snapshot_id, content, expected=expected)
        await self._remember(manifest, version, content)

    async def bury(self, snapshot_id: SnapshotId) -> None:
        """Make a snapshot not exist any more, whatever its cell holds. Raises `SnapshotNotFound`."""
        for _ in range(_TRIES):
            finding, _ = await self._inspect(snapshot_id)
            if finding is None or finding.state is State.DELETED:
                raise _not_found(snapshot_id)
            try:
                version = await self._store.write_cell(MANIFESTS, snapshot_id, _BURIED, expected=finding.version)
            except CellChanged:
                continue
            buried = Finding(snapshot_id, version, State.DELETED, None, frozenset())
            await self.ask(self._index.put, (buried,), self._clock.now().timestamp())
            return
        raise SnapshotExists(f"snapshot {snapshot_id} changes faster than it can be deleted; try again")

    async def holder_of(self, name: str) -> SnapshotId | None:
        """Return who has a canonical name."""
        cell = await self._store.read_cell(NAMES, names.to_key(name))
        return None if cell is None else _parse_holder(cell)

    async def point(self, name: str, snapshot_id: SnapshotId | None, *, expected: SnapshotId | None) -> None:
        """Give a canonical name to a snapshot if `expected` has it. Raises `NameTaken`."""
        key = names.to_key(name)
        cell = await self._store.read_cell(NAMES, key)
        holder = None if cell is None else _parse_holder(cell)
        if holder != expected:
            raise NameTaken(f"the name '{name}' belongs to {f'snapshot {holder}' if holder else 'no snapshot'} now")
        if holder == snapshot_id:
            return
        # The nonce makes every writing differ, also for stores whose versions are made from the content.
        content = json.dumps({"snapshot_id": snapshot_id, "nonce": secrets.token_hex(8)}).encode()
        try:
            version = await self._store.write_cell(NAMES, key, content, expected=cell.version if cell else None)
        except CellChanged:
            raise NameTaken(f"the name '{name}' was given to another snapshot just now") from None
        await self.ask(self._index.put_names, (NameFinding(key, version, snapshot_id),))

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
            finding, _ = await self._inspect(holder)
            if finding is None or finding.state is State.DELETED:
                with contextlib.suppress(NameTaken):
                    await self.point(name, None, expected=holder)

    async def refresh(self) -> None:
        """Bring the index up to the store. Raises `StoreUnavailable` at the end when a cell could not be read."""
        async with self._refreshing:
            await self._refresh_manifests()
            await self._refresh_names()

    async def _refresh_manifests(self) -> None:
        known = await self.ask(self._index.versions)
        found = await self._store.cells(MANIFESTS)
        changed = [key for key, version in found.items() if known.get(key) != version and parse_snapshot_id(key)]
        unread = 0
        for chunk in _chunks(changed):
            findings: list[Finding] = []

            async def look(key: str, findings: list[Finding] = findings) -> None:
                finding, _ = await self._inspect(SnapshotId(key))
                if finding is not None:
                    findings.append(finding)

            unread += len(await aio.for_each(chunk, look, at_once=_READS_AT_ONCE))
            await self.ask(self._index.put, findings, self._clock.now().timestamp(), seen=known)
        await self.ask(self._index.remove, {key: version for key, version in known.items() if key not in found})
        _complain(unread, "manifests")

    async def _refresh_names(self) -> None:
        known = await self.ask(self._index.name_versions)
        found = await self._store.cells(NAMES)
        changed = [key for key, version in found.items() if known.get(key) != version and names.from_key(key)]
        unread = 0
        for chunk in _chunks(changed):
            findings: list[NameFinding] = []

            async def look(key: str, findings: list[NameFinding] = findings) -> None:
                cell = await self._store.read_cell(NAMES, key)
                if cell is not None:
                    findings.append(NameFinding(key, cell.version, _parse_holder(cell)))

            unread += len(await aio.for_each(chunk, look, at_once=_READS_AT_ONCE))
            await self.ask(self._index.put_names, findings)
        await self.ask(self._index.remove_names, known.keys() - found.keys())
        _complain(unread, "names")

    async def _inspect(self, snapshot_id: SnapshotId) -> tuple[Finding | None, SnapshotDamaged | None]:
        try:
            cell = await self._store.read_cell(MANIFESTS, snapshot_id)
        except CellDamaged as error:
            version = (await self._store.cells(MANIFESTS)).get(snapshot_id)
            damaged = SnapshotDamaged(f"the manifest of snapshot {snapshot_id} cannot be read: {error.message}")
            finding = None if version is None else Finding(snapshot_id, version, State.DAMAGED, None, frozenset())
            return finding, damaged
        if cell is None:
            return None, None
        if cell.content == _BURIED:
            return Finding(snapshot_id, cell.version, State.DELETED, None, frozenset()), None
        digests = manifests.find_digests(cell.content)
        try:
            manifest = manifests.decode(snapshot_id, cell.content)
        except SnapshotDamaged as error:
            return Finding(snapshot_id, cell.version, State.DAMAGED, None, digests), error
        return Finding(snapshot_id, cell.version, State.WHOLE, manifest, digests), None

    async def _remember(self, manifest: SnapshotManifest, version: Version, content: bytes) -> None:
        digests = manifests.find_digests(content)
        finding = Finding(manifest.snapshot_id, version, State.WHOLE, manifest, digests)
        await self.ask(self._index.put, (finding,), self._clock.now().timestamp())


def _is_same(one: SnapshotManifest, other: SnapshotManifest) -> bool:
    """A snapshot whose layers were merged is still the same."""
    return replace(one, disk_layers=other.disk_layers, memory_layers=other.memory_layers) == other


def _parse_holder(cell: Cell) -> SnapshotId | None:
    """A name's cell that cannot be understood is nobody's, so that the name can be given again."""
    try:
        holder = json.loads(cell.content)["snapshot_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return parse_snapshot_id(holder) if isinstance(holder, str) else None


def _chunks(keys: list[str]) -> Iterator[list[str]]:
    return (keys[start : start + _READ_CHUNK] for start in range(0, len(keys), _READ_CHUNK))


def _complain(unread: int, what: str) -> None:
    if unread:
        raise StoreUnavailable(f"{unread} {what} of the repository cannot be read now")


def _not_found(snapshot_id: SnapshotId) -> SnapshotNotFound:
    return SnapshotNotFound(f"snapshot '{snapshot_id}' not found")
