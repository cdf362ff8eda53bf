"""Keeps chains of layers short: merges neighbours in the background, and gives the snapshot the merged ones instead.

Touches no layer of an image, and no layer that is there: a merged layer is a new file.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from agentenv.base import log, metrics
from agentenv.base.errors import AgentEnvError, Corrupt, NotFound
from agentenv.base.ids import SnapshotId
from agentenv.base.units import MIB
from agentenv.objects.base import ObjectStore
from agentenv.snapshots.access import Access
from agentenv.snapshots.base import FileRecord, LayerRef, SnapshotManifest
from agentenv.snapshots.catalogue import Catalogue
from agentenv.snapshots.chain import Chain, Link
from agentenv.snapshots.files import SnapshotFiles
from agentenv.snapshots.leases import Leases
from agentenv.snapshots.ledger import Ledger

LONG = "long"
"""The topic under which publications note snapshots that this node should compact."""
COMPACTING = "compact:"
_merged_bytes = metrics.counter("aenv_snapshots_merged_bytes", "Bytes of layers that compaction has written.")
_log = log.get("snapshots")


class Merger(Protocol):
    """Makes one layer of neighbours."""

    async def merge(self, layers: Sequence[Path], output: Path) -> FileRecord:
        """Write the layer that can take the place of `layers` (bottom first) to the new file `output`, durably."""
        ...


class Compactor:
    """Merges the chains of snapshots that this node has published, one at a time."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        access: Access,
        catalogue: Catalogue,
        files: SnapshotFiles,
        leases: Leases,
        merger: Merger,
        limit: int,
    ) -> None:
        self._store = store
        self._access = access
        self._catalogue = catalogue
        self._files = files
        self._leases = leases
        self._merger = merger
        self._limit = limit

    async def turn(self) -> None:
        """Compact every snapshot that was noted. One that fails is tried again, unless it is damaged or gone."""
        for key in await self._access.ledger(Ledger.marked, LONG):
            try:
                await self.compact(SnapshotId(key))
            except (Corrupt, NotFound) as error:
                _log.warning("snapshot_not_compacted", snapshot_id=key, reason=error.message)
            except AgentEnvError as error:
                _log.error("compaction_failed", snapshot_id=key, reason=error.message)
                continue
            await self._access.ledger(Ledger.unmark, LONG, key)

    async def compact(self, snapshot_id: SnapshotId) -> bool:
        """Give a snapshot shorter chains, if they are too long; returns whether they were.

        Raises `CellChanged` when somebody else changed the snapshot meanwhile, `SnapshotDamaged`, `SnapshotNotFound`.
        """
        manifest, version = await self._catalogue.read(snapshot_id)
        if not is_long(manifest, self._limit):
            return False
        holder = f"{COMPACTING}{snapshot_id}"
        await self._leases.take(holder, [record.digest for record in manifest.records()])
        try:
            below = _count_image_layers(manifest)
            image, disk = manifest.disk_layers[:below], _own(manifest.disk_layers[below:])
            changed = replace(
                manifest,
                disk_layers=(*image, *await self._shorten(holder, disk, manifest.disk_size_bytes)),
                memory_layers=await self._shorten(holder, manifest.memory_layers, manifest.memory_mib * MIB),
            )
            await self._catalogue.replace(changed, version)
            await self._files.require(changed.records())
        finally:
            await self._leases.release(holder)
            await self._store.drop_workspace(_to_workspace(holder))
        _log.info(
            "snapshot_compacted",
            snapshot_id=snapshot_id,
            disk_layers=len(changed.disk_layers),
            memory_layers=len(changed.memory_layers),
        )
        return True

    async def _shorten(self, holder: str, layers: tuple[FileRecord, ...], shown_bytes: int) -> tuple[FileRecord, ...]:
        weights = await self._access.ledger(Ledger.weights, [layer.digest for layer in layers])
        chain = Chain(
            tuple(Link(layer.size_bytes, weights[layer.digest]) for layer in layers), shown_bytes, self._limit
        )
        if not chain.is_long:
            return layers
        current = list(layers)
        while (window := chain.choose()) is not None:
            neighbours = current[window.start : window.end]
            weight = sum(link.weight for link in chain.links[window.start : window.end])
            merged = await self._find_merged(neighbours) or await self._write_merged(holder, neighbours, weight)
            current[window.start : window.end] = [merged]
            chain = chain.merged(window, Link(merged.size_bytes, weight))
        return tuple(current)

    async def _find_merged(self, neighbours: list[FileRecord]) -> FileRecord | None:
        """Sisters share long parts of their chains; what was merged for one serves the other."""
        found = await self._access.ledger(Ledger.find_merged, _key(neighbours))
        if found is None or await self._store.blob_size(found[0]) != found[1]:
            return None
        return FileRecord(*found)

    async def _write_merged(self, holder: str, neighbours: list[FileRecord], weight: int) -> FileRecord:
        paths = [await self._files.fetch(record) for record in neighbours]
        output = await self._store.workspace(_to_workspace(holder)) / "merged"
        merged = await self._merger.merge(paths, output)
        await self._leases.take(holder, [merged.digest])
        await self._files.put(merged, output)
        await self._access.ledger(Ledger.note_merged, _key(neighbours), merged.digest, merged.size_bytes, weight)
        _merged_bytes.inc(merged.size_bytes)
        return merged


def is_long(manifest: SnapshotManifest, limit: int) -> bool:
    """Return whether a snapshot's disk or memory has too many layers, or too many dead bytes."""
    disk = _own(manifest.disk_layers[_count_image_layers(manifest) :])
    chains = ((disk, manifest.disk_size_bytes), (manifest.memory_layers, manifest.memory_mib * MIB))
    return any(
        Chain(tuple(Link(layer.size_bytes) for layer in layers), shown_bytes, limit).is_long
        for layers, shown_bytes in chains
    )


def _own(layers: Sequence[LayerRef]) -> tuple[FileRecord, ...]:
    return tuple(layer for layer in layers if isinstance(layer, FileRecord))


def _count_image_layers(manifest: SnapshotManifest) -> int:
    """Return how many layers stand below the first from which on all are the repository's."""
    outside = [number for number, layer in enumerate(manifest.disk_layers) if not isinstance(layer, FileRecord)]
    return outside[-1] + 1 if outside else 0


def _key(neighbours: list[FileRecord]) -> str:
    return " ".join(record.digest.removeprefix("sha256:") for record in neighbours)


def _to_workspace(holder: str) -> str:
    return holder.replace(":", "-")
