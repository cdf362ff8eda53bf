"""The files of snapshots: stored, found, checked, healed from what was set aside. Knows no manifests."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from agentenv.base import aio, log
from agentenv.base.aio import BlockingPool
from agentenv.blocks.base import FileLayer, LayerSource, ObjectLayer
from agentenv.objects.base import ObjectStore
from agentenv.snapshots.base import FileRecord
from agentenv.snapshots.errors import SnapshotDamaged

_AT_ONCE = 8
_CHECKED_BYTES = 16 * 1024 * 1024
_log = log.get("snapshots")


class SnapshotFiles:
    """What of a file is checked when: its size always, its content when it is small, or by `verify`."""

    def __init__(self, store: ObjectStore, pool: BlockingPool) -> None:
        self._store = store
        self._pool = pool

    async def put(self, record: FileRecord, source: Path) -> None:
        """Store a new file and take it. One that is gone from `source` must be stored already."""
        if source.exists():
            size = source.stat().st_size
            if size != record.size_bytes:
                raise SnapshotDamaged(f"{source} has {size} bytes, not {record.size_bytes}")
            await self._store.put_blob(record.digest, source)

    async def put_all(self, sources: Mapping[FileRecord, Path]) -> None:
        """Store new files side by side, so that they wait for the disk together; some may be stored when one fails."""
        failed = await aio.for_each(sources.items(), lambda one: self.put(*one), at_once=_AT_ONCE)
        if failed:
            raise failed[0][1]

    async def require(self, records: Iterable[FileRecord]) -> None:
        """Return when every file is there in its size. Raises `SnapshotDamaged` naming one that is not."""
        failed = await aio.for_each(records, self._require, at_once=_AT_ONCE)
        if failed:
            raise failed[0][1]

    async def _require(self, record: FileRecord) -> None:
        size = await self._store.blob_size(record.digest)
        if size is None and await self._store.restore(record.digest):
            _log.warning("file_restored", digest=record.digest)
            size = await self._store.blob_size(record.digest)
        _check_size(record, size)

    async def layer(self, record: FileRecord) -> LayerSource:
        """Return where a layer is read."""
        await self._require(record)
        place = await self._store.locate_blob(record.digest)
        if isinstance(place, Path):
            return FileLayer(place, record.digest)
        return ObjectLayer(
            endpoint=place.endpoint,
            bucket=place.bucket,
            key=place.key,
            digest=record.digest,
            size_bytes=record.size_bytes,
            credentials_path=place.credentials_path,
        )

    async def layers(self, records: Collection[FileRecord]) -> dict[FileRecord, LayerSource]:
        """Return where each layer is read."""
        found: dict[FileRecord, LayerSource] = {}

        async def one(record: FileRecord) -> None:
            found[record] = await self.layer(record)

        failed = await aio.for_each(records, one, at_once=_AT_ONCE)
        if failed:
            raise failed[0][1]
        return found

    async def fetch(self, record: FileRecord) -> Path:
        """Return a local file; the content of a small one is checked."""
        path = await self._store.local_blob(record.digest)
        if path is None and await self._store.restore(record.digest):
            path = await self._store.local_blob(record.digest)
        if path is None:
            raise _missing(record)
        _check_size(record, path.stat().st_size)
        if record.size_bytes <= _CHECKED_BYTES:
            _check_digest(record, await self._pool.run(_digest, path))
        return path

    async def verify(self, records: Collection[FileRecord]) -> None:
        """Read every file and compare. Raises `SnapshotDamaged` naming each that is bad."""
        problems = []
        for record in records:
            try:
                await self._require(record)
                _check_digest(record, await self._store.digest_blob(record.digest))
            except SnapshotDamaged as error:
                problems.append(error.message)
        if problems:
            raise SnapshotDamaged("; ".join(problems))


def _check_size(record: FileRecord, size: int | None) -> None:
    if size is None:
        raise _missing(record)
    if size != record.size_bytes:
        raise SnapshotDamaged(f"the file {record.digest} has {size} bytes, not {record.size_bytes}")


def _check_digest(record: FileRecord, digest: str | None) -> None:
    if digest is None:
        raise _missing(record)
    if digest != record.digest:
        raise SnapshotDamaged(f"the file {record.digest} has other content: {digest}")


def _missing(record: FileRecord) -> SnapshotDamaged:
    return SnapshotDamaged(f"the file {record.digest} is missing")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
