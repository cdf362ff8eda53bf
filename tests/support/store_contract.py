"""What every object store must do; a test module inherits it and brings a fixture `store`."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from agentenv.objects.base import ObjectStore, Version
from agentenv.objects.errors import CellChanged


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


async def put(store: ObjectStore, content: bytes, digest: str | None = None) -> str:
    source = await store.workspace("work") / "file"
    source.write_bytes(content)
    await store.put_blob(digest or digest_of(content), source)
    assert not source.exists()
    return digest or digest_of(content)


class StoreContract:
    """Blobs and cells."""

    async def test_a_blob_is_there_after_it_was_put_and_only_then(self, store: ObjectStore) -> None:
        assert await store.blob_size(digest_of(b"one")) is None
        digest = await put(store, b"one")
        assert await store.blob_size(digest) == 3
        assert await store.blobs() == {digest: 3}
        path = await store.local_blob(digest)
        assert path is not None
        assert path.read_bytes() == b"one"

    async def test_putting_a_blob_again_keeps_it(self, store: ObjectStore) -> None:
        digest = await put(store, b"one")
        await put(store, b"one")
        assert await store.blobs() == {digest: 3}

    async def test_a_blob_of_another_size_is_replaced(self, store: ObjectStore) -> None:
        digest = digest_of(b"whole")
        await put(store, b"who", digest)
        await put(store, b"whole", digest)
        assert await store.digest_blob(digest) == digest

    async def test_other_content_under_a_digest_is_found(self, store: ObjectStore) -> None:
        digest = await put(store, b"wrong", digest_of(b"right"))
        assert await store.digest_blob(digest) == digest_of(b"wrong")
        assert await store.digest_blob(digest_of(b"absent")) is None

    async def test_what_is_set_aside_is_gone_until_it_is_restored(self, store: ObjectStore) -> None:
        digest = await put(store, b"one")
        await store.set_aside(digest)
        assert (await store.blob_size(digest), await store.blobs(), await store.aside()) == (None, {}, {digest: 3})
        assert await store.restore(digest)
        assert (await store.blobs(), await store.aside()) == ({digest: 3}, {})
        assert not await store.restore(digest)

    async def test_a_blob_that_came_while_one_was_aside_stays(self, store: ObjectStore) -> None:
        digest = await put(store, b"one")
        await store.set_aside(digest)
        await put(store, b"one")
        await store.purge(digest)
        assert (await store.blobs(), await store.aside()) == ({digest: 3}, {})

    async def test_purging_and_setting_aside_what_is_absent_does_nothing(self, store: ObjectStore) -> None:
        await store.set_aside(digest_of(b"absent"))
        await store.purge(digest_of(b"absent"))
        assert await store.aside() == {}

    async def test_a_cell_is_written_once_for_each_version(self, store: ObjectStore) -> None:
        first = await store.write_cell("names", "a@b", b"1", expected=None)
        for stale in (None, Version("nonsense" if not first.isdecimal() else "77")):
            with pytest.raises(CellChanged):
                await store.write_cell("names", "a@b", b"x", expected=stale)
        second = await store.write_cell("names", "a@b", b"2", expected=first)
        with pytest.raises(CellChanged):
            await store.write_cell("names", "a@b", b"x", expected=first)
        cell = await store.read_cell("names", "a@b")
        assert cell is not None
        assert (cell.content, cell.version) == (b"2", second)
        assert await store.cells("names") == {"a@b": second}

    async def test_a_cell_that_is_absent_cannot_be_expected(self, store: ObjectStore) -> None:
        version = await store.write_cell("names", "other", b"", expected=None)
        with pytest.raises(CellChanged):
            await store.write_cell("names", "absent", b"x", expected=version)
        assert await store.read_cell("names", "absent") is None

    async def test_the_same_content_again_is_another_version(self, store: ObjectStore) -> None:
        first = await store.write_cell("names", "a", b"same", expected=None)
        second = await store.write_cell("names", "a", b"other", expected=first)
        third = await store.write_cell("names", "a", b"same", expected=second)
        assert third != first

    async def test_keys_that_begin_alike_are_different_cells(self, store: ObjectStore) -> None:
        for key in ("a", "a.1", "a.1.1", "a@1"):
            await store.write_cell("names", key, key.encode(), expected=None)
        found = {key: await store.read_cell("names", key) for key in await store.cells("names")}
        assert {key: cell.content.decode() for key, cell in found.items() if cell} == {key: key for key in found}
        assert len(found) == 4

    async def test_of_many_writers_at_once_one_wins_each_round(self, store: ObjectStore) -> None:
        expected = None
        for turn in range(5):
            results = await asyncio.gather(
                *(store.write_cell("names", "a", f"{turn} {one}".encode(), expected=expected) for one in range(8)),
                return_exceptions=True,
            )
            won = [result for result in results if isinstance(result, str)]
            assert len(won) == 1, results
            assert sum(isinstance(result, CellChanged) for result in results) == 7
            expected = Version(won[0])

    async def test_a_forgotten_cell_is_absent(self, store: ObjectStore) -> None:
        await store.write_cell("names", "a", b"1", expected=None)
        await store.forget_cell("names", "a")
        await store.forget_cell("names", "a")
        assert (await store.read_cell("names", "a"), await store.cells("names")) == (None, {})

    async def test_a_workspace_is_empty_and_can_be_dropped(self, store: ObjectStore, tmp_path: Path) -> None:
        path = await store.workspace("one")
        (path / "left").touch()
        assert await store.workspace("one") == path
        assert list(path.iterdir()) == []
        assert await store.workspaces() == ["one"]
        await store.drop_workspace("one")
        await store.drop_workspace("one")
        assert await store.workspaces() == []
