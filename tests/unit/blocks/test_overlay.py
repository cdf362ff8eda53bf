"""The store keeps whole disks and forgets what nobody owns."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from agentenv.base import trees
from agentenv.base.ids import SandboxId, new_sandbox_id
from agentenv.blocks import overlay
from agentenv.blocks.base import Disk, DiskFormat
from agentenv.blocks.errors import BaseRefused, DiskDamaged, DiskNotWritten
from agentenv.blocks.overlay import OverlayStore

ONE, TWO = new_sandbox_id(), new_sandbox_id()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.ext4"
    path.write_bytes(b"base" * 1024)
    return path


@pytest.fixture
def store(tmp_path: Path) -> OverlayStore:
    return OverlayStore(tmp_path / "disks")


async def test_created_disk_is_found_with_the_size_of_its_base(store: OverlayStore, base: Path) -> None:
    disk = await store.create(ONE, base, owner=os.getuid())

    assert disk == Disk(disk.path, 4096, DiskFormat.QCOW2)
    assert await store.find(ONE) == disk
    assert disk.path.stat().st_mode & 0o777 == 0o600
    assert base.read_bytes() == b"base" * 1024


async def test_create_replaces_what_a_killed_server_left_half_made(
    store: OverlayStore, base: Path, tmp_path: Path
) -> None:
    (tmp_path / "disks" / ONE).mkdir(parents=True)
    (tmp_path / "disks" / ONE / ".root.qcow2").write_bytes(b"half")

    disk = await store.create(ONE, base, owner=os.getuid())

    assert [entry.name for entry in disk.path.parent.iterdir()] == ["root.qcow2"]


async def test_remove_can_be_called_again(store: OverlayStore, base: Path) -> None:
    await store.create(ONE, base, owner=os.getuid())

    await store.remove(ONE)
    await store.remove(ONE)

    assert await store.find(ONE) is None


async def test_collect_removes_all_but_the_kept(store: OverlayStore, base: Path, tmp_path: Path) -> None:
    await store.create(ONE, base, owner=os.getuid())
    await store.create(TWO, base, owner=os.getuid())
    (tmp_path / "disks" / "stray-link").symlink_to(tmp_path)

    removed = await store.collect(frozenset({ONE}))

    assert sorted(removed) == sorted([f"disk of {TWO}", "disk of stray-link"])
    assert await store.find(ONE) is not None
    assert await store.find(TWO) is None
    assert base.exists()


async def test_a_leftover_that_cannot_be_removed_does_not_keep_the_others(
    store: OverlayStore, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted((ONE, TWO))
    await store.create(first, base, owner=os.getuid())
    await store.create(second, base, owner=os.getuid())
    remove = trees.remove

    def refuse_first(path: Path) -> None:
        if path.name == first:
            raise OSError(16, "Device or resource busy")
        remove(path)

    monkeypatch.setattr(trees, "remove", refuse_first)

    assert await store.collect(frozenset()) == [f"disk of {second}"]
    assert await store.find(first) is not None


async def test_a_create_that_is_cancelled_has_finished_before_its_caller_cleans_up(
    store: OverlayStore, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Event(), threading.Event()
    write = overlay._write

    def write_slowly(path: Path, base: Path, size_bytes: int, owner: int) -> None:
        begun.set()
        gate.wait()
        write(path, base, size_bytes, owner)

    monkeypatch.setattr(overlay, "_write", write_slowly)
    creating = asyncio.ensure_future(store.create(ONE, base, owner=os.getuid()))
    await asyncio.to_thread(begun.wait)
    creating.cancel()
    asyncio.get_running_loop().call_soon(gate.set)
    with pytest.raises(asyncio.CancelledError):
        await creating
    await store.remove(ONE)

    assert list((tmp_path / "disks").iterdir()) == []


async def test_collect_of_a_store_never_used_finds_nothing(store: OverlayStore) -> None:
    assert await store.collect(frozenset()) == []


@pytest.mark.parametrize("size", [0, 511, 513])
async def test_base_that_is_no_whole_sectors_is_refused(store: OverlayStore, tmp_path: Path, size: int) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(bytes(size))

    with pytest.raises(BaseRefused, match=f"not {size} bytes"):
        await store.create(ONE, odd, owner=os.getuid())
    assert await store.find(ONE) is None


async def test_missing_base_is_refused_by_name(store: OverlayStore, tmp_path: Path) -> None:
    with pytest.raises(BaseRefused, match=r"gone\.ext4"):
        await store.create(ONE, tmp_path / "gone.ext4", owner=os.getuid())


async def test_disk_that_cannot_be_written_leaves_nothing(store: OverlayStore, base: Path, tmp_path: Path) -> None:
    (tmp_path / "disks").write_text("a file where a directory belongs")

    with pytest.raises(DiskNotWritten, match=ONE):
        await store.create(ONE, base, owner=os.getuid())


async def test_damaged_disk_is_not_taken_for_a_disk(store: OverlayStore, base: Path) -> None:
    disk = await store.create(ONE, base, owner=os.getuid())
    disk.path.write_bytes(b"zeroes")

    with pytest.raises(DiskDamaged, match=ONE):
        await store.find(SandboxId(ONE))
