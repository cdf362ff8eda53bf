"""Compaction of real layers: the disk that they make is the same, byte for byte."""

import random
from pathlib import Path

from agentenv.base.aio import BlockingPool
from agentenv.blocks.layers import LayerFiles
from agentenv.objects.directory import DirectoryStore
from agentenv.snapshots.base import FileRecord, LayerRef
from agentenv.snapshots.merging import LayerMerger
from agentenv.snapshots.opening import KINDS, Parts
from support.clock import FakeClock
from support.snapshots import make_manifest, open_parts

_BLOCK = 4096
_BLOCKS = 256


async def test_merged_layers_make_the_same_disk(tmp_path: Path, clock: FakeClock) -> None:
    pool = BlockingPool("merge", 1)
    layer_files = LayerFiles(pool)
    store = DirectoryStore(tmp_path / "store", node="node-a", kinds=KINDS)
    async with open_parts(store, tmp_path / "local", clock, merger=LayerMerger(layer_files)) as parts:
        manifest = make_manifest(b"replaced below", disk_size_bytes=_BLOCK * _BLOCKS)
        directory = await parts.repository.incoming(manifest.snapshot_id)
        chance = random.Random(7)
        files: dict[str, Path] = {}
        layers: list[FileRecord] = []
        for number in range(20):
            image, output = tmp_path / "image", directory / f"{number}"
            image.write_bytes(_scatter(chance, number))
            written = await layer_files.commit(image, output, hide_below=number % 5 == 4)
            files[written.digest] = output
            layers.append(FileRecord(written.digest, written.file_bytes))
        made = make_manifest(disk_layers=tuple(layers), disk_size_bytes=manifest.disk_size_bytes)
        await parts.repository.publish(made, files)
        before = await _read(parts, layer_files, made.disk_layers, tmp_path / "before")
        assert await parts.compactor.compact(made.snapshot_id)
        compacted = await parts.repository.get(made.snapshot_id)
        assert len(compacted.disk_layers) < 20
        assert await _read(parts, layer_files, compacted.disk_layers, tmp_path / "after") == before
        await parts.repository.verify(made.snapshot_id)
    pool.close()


def _scatter(chance: random.Random, number: int) -> bytes:
    image = bytearray(_BLOCK * _BLOCKS)
    for block in chance.sample(range(_BLOCKS), 20):
        image[block * _BLOCK : (block + 1) * _BLOCK] = bytes([number + 1]) * _BLOCK
    return bytes(image)


async def _read(parts: Parts, layer_files: LayerFiles, layers: tuple[LayerRef, ...], output: Path) -> bytes:
    paths = [await parts.repository.fetch(layer) for layer in layers if isinstance(layer, FileRecord)]
    await layer_files.cat(paths, output)
    return output.read_bytes()
