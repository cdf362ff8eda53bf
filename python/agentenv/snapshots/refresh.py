"""Brings a node's index up to the store: lists all cells, reads those that changed, and nothing else."""

import asyncio
import functools
from collections.abc import Iterator, Mapping

from agentenv.base.clock import Clock
from agentenv.base.ids import SnapshotId, parse_snapshot_id
from agentenv.objects.base import Cell, ObjectStore, Version
from agentenv.objects.errors import StoreUnavailable
from agentenv.snapshots import findings, names
from agentenv.snapshots.access import Access
from agentenv.snapshots.catalogue import MANIFESTS, NAMES, Catalogue
from agentenv.snapshots.findings import Finding
from agentenv.snapshots.index import Index

_CHUNK = 256


class Refresh:
    """Invariant: manifests are read before names, so a name that leads nowhere in the index may only be new."""

    def __init__(self, store: ObjectStore, access: Access, catalogue: Catalogue, clock: Clock) -> None:
        self._store = store
        self._access = access
        self._catalogue = catalogue
        self._clock = clock
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Refresh once. Raises `StoreUnavailable` when a cell could not be read, after all others were."""
        async with self._turn:
            unread = await self._manifests() + await self._names()
        if unread:
            raise StoreUnavailable(f"{unread} manifests and names of the repository cannot be read now")

    async def _manifests(self) -> int:
        known = await self._access.change(Index.versions)
        found = await self._store.cells(MANIFESTS)
        unread = 0
        for chunk in _changes(found, known):
            cells = await self._store.read_cells(MANIFESTS, chunk)
            read = await self._access.think(functools.partial(_interpret, cells))
            for key in chunk.keys() - cells.keys():
                try:
                    finding = await self._catalogue.inspect(SnapshotId(key))
                except StoreUnavailable:
                    unread += 1
                else:
                    read += [] if finding is None else [finding]
            await self._access.change(Index.put, read, self._clock.now().timestamp(), seen=known)
        gone = {key: version for key, version in known.items() if key not in found}
        await self._access.change(Index.remove, gone)
        return unread

    async def _names(self) -> int:
        known = await self._access.change(Index.name_versions)
        found = await self._store.cells(NAMES)
        unread = 0
        for chunk in _changes(found, known):
            cells = await self._store.read_cells(NAMES, chunk)
            unread += len(chunk) - len(cells)
            read = [findings.interpret_name(key, cell) for key, cell in cells.items() if names.from_key(key)]
            await self._access.change(Index.put_names, read)
        await self._access.change(Index.remove_names, known.keys() - found.keys())
        return unread


def _interpret(cells: Mapping[str, Cell]) -> list[Finding]:
    return [findings.interpret(SnapshotId(key), cell) for key, cell in cells.items() if parse_snapshot_id(key)]


def _changes(found: Mapping[str, Version], known: Mapping[str, Version]) -> Iterator[dict[str, Version]]:
    changed = [(key, version) for key, version in found.items() if known.get(key) != version]
    return (dict(changed[start : start + _CHUNK]) for start in range(0, len(changed), _CHUNK))
