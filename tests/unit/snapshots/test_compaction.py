"""Compaction: the same content in fewer layers, once for all sisters, and nothing lost on the way."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentenv.blocks.base import FileLayer
from agentenv.objects.directory import DirectoryStore
from agentenv.objects.errors import CellChanged, StoreFull
from agentenv.snapshots.base import FileRecord, SnapshotManifest
from agentenv.snapshots.errors import SnapshotNotFound
from agentenv.snapshots.opening import KINDS, Parts
from support.clock import FakeClock
from support.repository_contract import blobs, collect_all
from support.snapshots import JoiningMerger, make_manifest, open_parts, publish, record_of, write_files

LAYERS = [bytes([number]) * 100 for number in range(1, 21)]
IMAGE = FileLayer(Path("/images/base"), f"sha256:{'1' * 64}")


@pytest.fixture
def merger() -> JoiningMerger:
    return JoiningMerger()


@pytest.fixture
async def parts(tmp_path: Path, clock: FakeClock, merger: JoiningMerger) -> AsyncIterator[Parts]:
    store = DirectoryStore(tmp_path / "store", node="node-a", kinds=KINDS)
    async with open_parts(store, tmp_path / "local", clock, merger=merger) as parts:
        yield parts


async def read_disk(parts: Parts, manifest: SnapshotManifest) -> bytes:
    records = [layer for layer in manifest.disk_layers if isinstance(layer, FileRecord)]
    return b"".join([(await parts.repository.fetch(record)).read_bytes() for record in records])


async def test_a_long_chain_becomes_short_with_the_same_content(parts: Parts) -> None:
    made = make_manifest(disk_layers=(IMAGE, *map(record_of, LAYERS)), memory_mib=1)
    await parts.repository.publish(made, await write_files(parts.repository, made.snapshot_id, LAYERS))
    await parts.compactor.turn()
    compacted = await parts.repository.get(made.snapshot_id)
    assert compacted.disk_layers[0] == IMAGE
    assert len(compacted.disk_layers) == 3
    assert await read_disk(parts, compacted) == b"".join(LAYERS)
    assert replace(compacted, disk_layers=made.disk_layers) == made
    assert not await parts.compactor.compact(made.snapshot_id)


async def test_memory_is_compacted_too(parts: Parts) -> None:
    made = await publish(parts.repository, b"disk", memory=tuple(LAYERS))
    await parts.compactor.turn()
    compacted = await parts.repository.get(made.snapshot_id)
    assert len(compacted.memory_layers) == 2
    assert compacted.disk_layers == made.disk_layers
    assert compacted.memory_name() != made.memory_name()


async def test_old_layers_go_unless_somebody_reads_them(parts: Parts, clock: FakeClock) -> None:
    made = await publish(parts.repository, *LAYERS)
    await parts.repository.lease("i1", [record_of(LAYERS[3]).digest])
    await parts.compactor.turn()
    await collect_all(parts, clock)
    compacted = await parts.repository.get(made.snapshot_id)
    assert await blobs(parts) == {*compacted.records(), record_of(LAYERS[3])}
    await parts.repository.verify(made.snapshot_id)


async def test_sisters_share_what_was_merged(parts: Parts, merger: JoiningMerger) -> None:
    await publish(parts.repository, *LAYERS[:17])
    await parts.compactor.turn()
    count = len(merger.merges)
    sister = await publish(parts.repository, *LAYERS[:17], b"other")
    await parts.compactor.turn()
    assert len(merger.merges) == count
    assert await read_disk(parts, await parts.repository.get(sister.snapshot_id)) == b"".join(LAYERS[:17]) + b"other"


async def test_a_snapshot_that_was_deleted_meanwhile_stays_deleted(
    parts: Parts, merger: JoiningMerger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await publish(parts.repository, *LAYERS)
    genuine = merger.merge

    async def slow(layers: Sequence[Path], output: Path) -> FileRecord:
        if not merger.merges:
            await parts.repository.delete(made.snapshot_id)
        return await genuine(layers, output)

    monkeypatch.setattr(merger, "merge", slow)
    with pytest.raises(CellChanged):
        await parts.compactor.compact(made.snapshot_id)
    with pytest.raises(SnapshotNotFound):
        await parts.repository.get(made.snapshot_id)
    await parts.compactor.turn()
    assert await parts.repository._store.workspaces() == []


async def test_a_full_disk_leaves_the_snapshot_as_it_was_and_is_tried_again(
    parts: Parts, merger: JoiningMerger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await publish(parts.repository, *LAYERS)

    async def full(layers: Sequence[Path], output: Path) -> FileRecord:
        raise StoreFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr(merger, "merge", full)
        await parts.compactor.turn()
    assert await parts.repository.get(made.snapshot_id) == made
    assert (await parts.repository._store.workspaces(), await parts.leases.own()) == ([], frozenset())
    await parts.compactor.turn()
    assert len((await parts.repository.get(made.snapshot_id)).disk_layers) == 2


@pytest.mark.parametrize("follows", [False, True])
async def test_two_hundred_snapshots_in_a_row_grow_in_nothing(
    parts: Parts, merger: JoiningMerger, clock: FakeClock, follows: bool
) -> None:
    """Each stands on the first layers of its predecessor (`follows`: on the merged ones); all are kept."""
    chain: list[FileRecord] = []
    for number in range(200):
        content = number.to_bytes(2) * 50
        chain.append(record_of(content))
        made = make_manifest(disk_layers=tuple(chain))
        await parts.repository.publish(made, await write_files(parts.repository, made.snapshot_id, [content]))
        await parts.compactor.turn()
        compacted = await parts.repository.get(made.snapshot_id)
        assert len(compacted.disk_layers) <= 16
        if follows:
            chain = [layer for layer in compacted.disk_layers if isinstance(layer, FileRecord)]
    assert await read_disk(parts, compacted) == b"".join(number.to_bytes(2) * 50 for number in range(200))
    await collect_all(parts, clock)
    stored = sum(record.size_bytes for record in await blobs(parts))
    assert merger.written_bytes < 4 * 200 * 100
    assert stored < 5 * 200 * 100
