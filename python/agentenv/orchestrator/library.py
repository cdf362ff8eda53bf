"""What sandboxes can be created from, as doors may ask for it: images and snapshots, found, shown and deleted."""

from agentenv.base import log
from agentenv.base.ids import SnapshotId
from agentenv.images.errors import TemplateNotFound
from agentenv.orchestrator.base import Template
from agentenv.orchestrator.errors import ImageNotDeletable
from agentenv.orchestrator.fleet import Fleet
from agentenv.snapshots.base import (
    Cursor,
    Page,
    SnapshotKind,
    SnapshotManifest,
    SnapshotQuery,
    SnapshotSummary,
)
from agentenv.snapshots.errors import NameInvalid, SnapshotDamaged, SnapshotNotFound

_log = log.get("orchestrator")


class Library:
    """Reads the catalogue and the repository. Snapshots that belong to a paused sandbox do not exist here."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def templates(self) -> list[Template]:
        """Return the images."""
        return [
            Template(
                template_id=image.template_id,
                names=image.names,
                vcpus=image.vcpus,
                memory_mib=image.memory_mib,
                disk_mib=image.disk_size_bytes // 2**20,
            )
            for image in await self._fleet.catalogue.list()
        ]

    async def find(self, query: SnapshotQuery, *, after: Cursor | None, limit: int) -> Page:
        """Return a page of snapshots; a name that none can have is a name that none has."""
        try:
            return await self._fleet.repository.list(query, after=after, limit=limit)
        except NameInvalid:
            return Page((), None)

    async def manifest(self, reference: str) -> SnapshotManifest:
        """Return a snapshot by id or name. Raises `SnapshotNotFound`."""
        repository = self._fleet.repository
        try:
            manifest = await repository.get(await repository.resolve(reference))
        except NameInvalid:
            raise SnapshotNotFound(f"snapshot '{reference[:128]}' not found") from None
        if manifest.kind is not SnapshotKind.SNAPSHOT:
            raise SnapshotNotFound(f"snapshot '{reference[:128]}' not found")
        return manifest

    async def summary(self, reference: str) -> SnapshotSummary:
        """Return a line about a snapshot. Raises `SnapshotNotFound`."""
        manifest = await self.manifest(reference)
        return (await self._fleet.repository.lineage(manifest.snapshot_id))[0]

    async def tree(self, reference: str) -> tuple[SnapshotSummary, ...]:
        """Return the snapshots of one tree. Raises `SnapshotNotFound`."""
        manifest = await self.manifest(reference)
        found = await self._fleet.repository.tree(manifest.snapshot_id)
        return tuple(summary for summary in found if summary.kind is SnapshotKind.SNAPSHOT)

    async def delete(self, reference: str) -> None:
        """Delete a snapshot, a damaged one too. Raises `SnapshotNotFound`, `ImageNotDeletable`."""
        repository = self._fleet.repository
        try:
            await self._fleet.catalogue.resolve(reference)
        except TemplateNotFound:
            pass
        else:
            raise ImageNotDeletable(f"'{reference}' is an image of this server, which no client can delete")
        try:
            snapshot_id = await repository.resolve(reference)
        except NameInvalid:
            raise SnapshotNotFound(f"snapshot '{reference[:128]}' not found") from None
        if await self._is_hidden(snapshot_id):
            raise SnapshotNotFound(f"snapshot '{reference[:128]}' not found")
        await repository.delete(snapshot_id)
        _log.info("snapshot_deleted", snapshot_id=snapshot_id)

    async def _is_hidden(self, snapshot_id: SnapshotId) -> bool:
        try:
            return (await self._fleet.repository.get(snapshot_id)).kind is not SnapshotKind.SNAPSHOT
        except SnapshotDamaged:
            owned = (record.checkpoint for record in self._fleet.book.all())
            return any(checkpoint is not None and checkpoint.snapshot_id == snapshot_id for checkpoint in owned)
