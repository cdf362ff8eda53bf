"""The store in a directory: the contract, and what only files can suffer."""

import multiprocessing
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentenv.base.errors import Bug
from agentenv.objects import errors
from agentenv.objects.directory import DirectoryStore
from agentenv.objects.errors import CellChanged, CellDamaged, StoreUnfit
from support import store_processes
from support.store_contract import StoreContract, digest_of, put

KINDS = ("names", "manifests")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    store = DirectoryStore(tmp_path / "store", node="one", kinds=KINDS)
    await store.start()
    yield store
    await store.close()


class TestDirectoryStore(StoreContract):
    pass


async def test_a_blob_from_the_workspace_is_not_copied(store: DirectoryStore) -> None:
    source = await store.workspace("work") / "file"
    source.write_bytes(b"content")
    inode = source.stat().st_ino
    await store.put_blob(digest_of(b"content"), source)
    path = await store.local_blob(digest_of(b"content"))
    assert path is not None
    assert path.stat().st_ino == inode


async def test_a_blob_that_is_there_keeps_its_inode(store: DirectoryStore) -> None:
    digest = await put(store, b"content")
    path = await store.local_blob(digest)
    assert path is not None
    inode = path.stat().st_ino
    await put(store, b"content")
    assert path.stat().st_ino == inode


async def test_a_file_of_another_file_system_is_copied(store: DirectoryStore) -> None:
    shared_memory = Path("/dev/shm")
    if shared_memory.stat().st_dev == (await store.workspace("work")).stat().st_dev:
        pytest.skip("only one file system here")
    source = shared_memory / f"agentenv-test-{os.getpid()}"
    source.write_bytes(b"far away")
    await store.put_blob(digest_of(b"far away"), source)
    assert not source.exists()
    assert await store.digest_blob(digest_of(b"far away")) == digest_of(b"far away")
    assert await store.sweep() == []


async def test_paths_never_leave_the_directory(store: DirectoryStore) -> None:
    for key in ("../x", "a/b", "", ".", "..", ".hidden", "x" * 300, "a\0b", "a\n"):
        with pytest.raises(Bug):
            await store.read_cell("names", key)
    for digest in ("sha256:../../etc", "sha256:" + "A" * 64, "md5:x", "sha256:" + "a" * 64 + "\n"):
        with pytest.raises(Bug):
            await store.blob_size(digest)


async def test_strangers_among_the_files_are_ignored(store: DirectoryStore, tmp_path: Path) -> None:
    (tmp_path / "store/layers/sha256/notes.txt").write_text("x")
    (tmp_path / "store/layers/sha256" / ("a" * 64)).symlink_to("/etc/passwd")
    (tmp_path / "store/names/00/.nfs000001").touch()
    (tmp_path / "store/names/00/key.0").touch()
    assert (await store.blobs(), await store.cells("names")) == ({}, {})
    with pytest.raises(errors.StoreUnavailable):
        await store.blob_size("sha256:" + "a" * 64)


async def test_an_endless_cell_is_refused(store: DirectoryStore, tmp_path: Path) -> None:
    await store.write_cell("names", "a", b"1", expected=None)
    (path,) = (tmp_path / "store/names").glob("*/a.1")
    os.truncate(path, 1 << 32)
    with pytest.raises(CellDamaged, match="larger"):
        await store.read_cell("names", "a")


async def test_a_writer_that_slept_through_many_changes_does_not_win(store: DirectoryStore, tmp_path: Path) -> None:
    first = await store.write_cell("names", "a", b"1", expected=None)
    second = await store.write_cell("names", "a", b"2", expected=first)
    await store.write_cell("names", "a", b"3", expected=second)
    generations = store._cells["names"]
    seen = iter([[1], [2, 3], [2, 3]])
    genuine = generations._generations
    generations._generations = lambda key: next(seen, None) or genuine(key)  # type: ignore[method-assign]
    with pytest.raises(CellChanged):
        generations.write("a", b"late", first)
    generations._generations = genuine  # type: ignore[method-assign]
    cell = await store.read_cell("names", "a")
    assert cell is not None
    assert cell.content == b"3"


async def test_a_store_without_exclusive_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path, node="one", kinds=KINDS)
    monkeypatch.setattr(os, "link", lambda source, target: None)
    with pytest.raises(StoreUnfit, match="replaces"):
        await store.start()
    await store.close()


async def test_a_full_disk_is_told_apart(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    source = await store.workspace("work") / "file"
    source.write_bytes(b"x")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(errors.StoreFull):
        await store.put_blob(digest_of(b"x"), source)
    assert source.exists()


async def test_processes_that_count_together_lose_nothing(store: DirectoryStore, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=store_processes.add_one_often, args=(str(tmp_path / "store"), 40)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    cell = await store.read_cell("names", "counter")
    assert cell is not None
    assert cell.content == b"120"
    assert len(list((tmp_path / "store/names").glob("*/counter.*"))) == 1
