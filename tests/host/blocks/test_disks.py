"""Disks and memory images on the real block daemon."""

import asyncio
import ctypes
import errno
import hashlib
import mmap
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import agentenv_core
from agentenv.base import process
from agentenv.base.clock import SystemClock
from agentenv.base.ids import SandboxId
from agentenv.base.units import MIB
from agentenv.blocks.base import Disk, FileLayer, Stack
from agentenv.blocks.errors import DiskDamaged, DiskSpaceShort
from agentenv.blocks.settings import BlocksSettings
from agentenv.blocks.store import LayeredStore
from support.real_disks import ONE, SIZE_BYTES, TWO, DiskLab, disk_lab, read, write

pytestmark = pytest.mark.host
_PUNCH_AND_KEEP_SIZE = 0x03


async def test_disk_shows_its_base_and_keeps_what_is_written_to_itself(lab: DiskLab) -> None:
    disks = await lab.start()
    one, two = await lab.create(disks.store, ONE), await lab.create(disks.store, TWO)

    await write(one, 4096, b"mine" * 1024)

    assert one.size_bytes == one.path.stat().st_size == SIZE_BYTES
    assert await read(one, 4096, 4096) == b"mine" * 1024
    assert await read(two, 4096, 4096) == b"\0\0\0\1" * 1024
    await disks.store.remove(ONE)
    assert not one.path.exists()
    assert await read(two, 4096, 4096) == b"\0\0\0\1" * 1024


async def test_disk_may_be_larger_than_its_base(lab: DiskLab) -> None:
    disks = await lab.start()
    disk = await disks.store.create(ONE, lab.base, owner=0, size_bytes=2 * SIZE_BYTES)
    await write(disk, 2 * SIZE_BYTES - 4096, b"x" * 4096)
    assert disk.path.stat().st_size == disk.size_bytes == 2 * SIZE_BYTES


async def test_frozen_moments_are_layers_and_the_disk_goes_on(lab: DiskLab) -> None:
    disks = await lab.start()
    disk = await lab.create(disks.store)
    moments = []
    for number in range(1, 5):
        await write(disk, number * MIB, bytes([number]) * MIB)
        frozen = await disks.store.freeze(ONE, f"s{number}", lab.home.path / f"incoming{number}")
        await write(disk, number * MIB, b"later" * 1000)
        moments.append(await disks.store.sealed(frozen))

    stack = await disks.store.stack(ONE)
    assert [layer.digest for layer in stack.layers] == [lab.base.layers[0].digest, *(one.digest for one in moments)]
    assert all(hashlib.sha256(one.path.read_bytes()).hexdigest() == one.digest[7:] for one in moments)
    # The disk at the third moment, from the files that were handed over alone.
    layers = [layer.path for layer in lab.base.layers if isinstance(layer, FileLayer)]
    agentenv_core.cat([*layers, *(one.path for one in moments[:3])], lab.home.path / "third")
    third = (lab.home.path / "third").read_bytes()
    assert third[: 4 * MIB] == await _expected_third(lab)
    for one in moments:
        one.path.unlink()
    assert (await read(disk, 4 * MIB, 5000)) == b"later" * 1000


async def _expected_third(lab: DiskLab) -> bytes:
    content = bytearray(b"".join(number.to_bytes(4, "big") * 1024 for number in range(256)).ljust(4 * MIB, b"\0"))
    for number in range(1, 4):
        content[number * MIB : (number + 1) * MIB] = bytes([number]) * MIB
        if number < 3:
            content[number * MIB : number * MIB + 5000] = b"later" * 1000
    return bytes(content)


async def test_seal_with_the_same_name_is_the_same_moment(lab: DiskLab) -> None:
    disks = await lab.start()
    disk = await lab.create(disks.store)
    await write(disk, 0, b"a" * 4096)
    first = await disks.store.freeze(ONE, "s", lab.home.path / "incoming")
    await write(disk, 0, b"b" * 4096)
    assert await disks.store.sealed(await disks.store.freeze(ONE, "s", lab.home.path / "incoming")) == (
        await disks.store.sealed(first)
    )
    assert len((await disks.store.stack(ONE)).layers) == 2


async def test_discarded_blocks_give_their_space_back(lab: DiskLab) -> None:
    disks = await lab.start()
    disk = await lab.create(disks.store)
    await write(disk, 8 * MIB, os.urandom(16 * MIB))
    full = _allocated(lab.home.blocks.writable)

    await asyncio.to_thread(_punch, disk.path, 8 * MIB, 16 * MIB)

    assert await read(disk, 8 * MIB, 4096) == bytes(4096)
    # The daemon gives space back in the background, once nothing durable points to it any more.
    async with asyncio.timeout(40):
        while full - _allocated(lab.home.blocks.writable) < 15 * MIB:
            await SystemClock().sleep(0.1)


def _allocated(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*"))


def _punch(path: Path, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDWR)
    try:
        arguments = (ctypes.c_int(_PUNCH_AND_KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(length))
        assert libc.fallocate(descriptor, *arguments) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(descriptor)


async def test_memory_image_is_one_file_for_all_and_stays_while_it_is_mapped(lab: DiskLab) -> None:
    disks = await lab.start()
    path = await disks.store.open_memory("m1", lab.base)
    assert await disks.store.open_memory("m1", lab.base) == path
    descriptor = os.open(path, os.O_RDWR)
    with mmap.mmap(descriptor, SIZE_BYTES, mmap.MAP_PRIVATE) as memory:
        os.close(descriptor)
        memory[4096:4100] = b"mine"
        assert memory[8192:8196] == b"\0\0\0\2"
        assert not await disks.store.close_memory("m1")
        assert await disks.store.memory_images() == ["m1"]
    assert await read_file(path, 4096, 4) == b"\0\0\0\1"
    assert await disks.store.close_memory("m1")
    assert not path.exists()


async def read_file(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


async def test_layer_that_is_no_layer_is_refused_and_leaves_nothing(lab: DiskLab) -> None:
    disks = await lab.start()
    (lab.home.path / "nonsense").write_bytes(os.urandom(8192))
    broken, absent = (Stack((FileLayer(lab.home.path / name),), SIZE_BYTES) for name in ("nonsense", "absent"))
    with pytest.raises(DiskDamaged):
        await disks.store.create(ONE, broken, owner=0)
    with pytest.raises(DiskDamaged, match="is missing"):
        await disks.store.create(ONE, absent, owner=0)
    assert list(lab.home.blocks.writable.iterdir()) == []


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[DiskLab]:
    """A home on a file system of 24 MiB."""
    await process.run(("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", tmp_path))
    try:
        async with disk_lab(tmp_path) as made:
            yield made
    finally:
        await process.run(("umount", tmp_path))


async def test_full_host_is_an_error_of_the_write_and_of_no_other_disk(small: DiskLab) -> None:
    disks = await small.start()
    disk, other = await small.create(disks.store, ONE), await small.create(disks.store, TWO)

    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        await _fill(disk)

    assert await read(other, 4096, 4) == b"\0\0\0\1"
    strict = LayeredStore(disks.store._client, small.home.blocks, BlocksSettings(reserve_mib=16))
    with pytest.raises(DiskSpaceShort):
        await strict.create(SandboxId("i0000000000000000003"), small.base, owner=0)
    await disks.store.remove(ONE)
    await write(other, 0, b"room again" * 1000)


async def test_layer_goes_to_another_kind_of_file_system_as_a_copy(
    small: DiskLab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "incoming"
    disks = await small.start()
    await write(await small.create(disks.store), 0, b"moved" * 1000)
    layer = await disks.store.sealed(await disks.store.freeze(ONE, "s", elsewhere))
    assert elsewhere.stat().st_dev != small.home.path.stat().st_dev
    assert f"sha256:{hashlib.sha256(elsewhere.read_bytes()).hexdigest()}" == layer.digest


async def _fill(disk: Disk) -> None:
    for number in range(32):
        await write(disk, number * MIB, os.urandom(MIB))
