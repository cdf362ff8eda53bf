"""The store in a bucket and the repository on it: both contracts, against a real S3 server."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from agentenv.objects.base import ObjectAddress
from agentenv.objects.bucket import BucketStore
from agentenv.objects.errors import CellChanged, CellDamaged, StoreUnavailable, StoreUnfit
from agentenv.snapshots.errors import SnapshotDamaged
from agentenv.snapshots.opening import Parts
from support.clock import FakeClock
from support.object_server import SECRET, ObjectServer, run_object_server
from support.repository_contract import RepositoryContract
from support.snapshots import open_parts, publish, record_of
from support.store_contract import StoreContract, digest_of, put

pytestmark = pytest.mark.host
_prefixes = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with run_object_server(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return f"test-{next(_prefixes)}"


@pytest.fixture
async def store(server: ObjectServer, prefix: str, tmp_path: Path) -> AsyncIterator[BucketStore]:
    store = BucketStore(server.settings(prefix), tmp_path / "a")
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def parts(server: ObjectServer, prefix: str, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Parts]:
    async with open_parts(BucketStore(server.settings(prefix), tmp_path / "a"), tmp_path / "a", clock) as parts:
        yield parts


@pytest.fixture
async def other(server: ObjectServer, prefix: str, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Parts]:
    store = BucketStore(server.settings(prefix), tmp_path / "b")
    async with open_parts(store, tmp_path / "b", clock, node="node-b") as parts:
        yield parts


class TestBucketStore(StoreContract):
    pass


class TestOss(RepositoryContract):
    pass


async def test_a_node_without_a_copy_reads_by_range(parts: Parts, other: Parts, server: ObjectServer) -> None:
    await publish(parts.repository, b"0123456789")
    layer = await other.repository.layer(record_of(b"0123456789"))
    assert layer.kind == "object"
    assert (layer.endpoint, layer.bucket, layer.size_bytes) == (server.endpoint, server.bucket, 10)
    store = other.repository._store
    assert isinstance(store, BucketStore)
    assert bytes(await obstore.get_range_async(store._store, layer.key, start=2, length=3)) == b"234"
    assert (await parts.repository.layer(record_of(b"0123456789"))).kind == "file"


async def test_a_download_is_checked_and_kept(parts: Parts, other: Parts) -> None:
    await publish(parts.repository, b"right")
    assert (await other.repository.fetch(record_of(b"right"))).read_bytes() == b"right"
    assert isinstance(await other.repository._store.locate_blob(record_of(b"right").digest), Path)
    store = parts.repository._store
    await put(store, b"wrong", record_of(b"other").digest)
    with pytest.raises(StoreUnavailable, match="other content"):
        await other.repository.fetch(record_of(b"other"))


async def test_copies_beyond_the_limit_go_but_not_those_in_use(store: BucketStore) -> None:
    store._cache._limit_bytes = 2 * 100
    digests = [await put(store, bytes([one]) * 100) for one in range(4)]
    assert await store.trim({digests[0]}) == [digests[1], digests[2]]
    assert isinstance(await store.locate_blob(digests[0]), Path)
    assert isinstance(await store.locate_blob(digests[1]), ObjectAddress)


async def test_large_files_go_up_in_parts(store: BucketStore) -> None:
    content = bytes(range(256)) * (160 * 1024)
    digest = await put(store, content)
    assert await store.blob_size(digest) == len(content)
    assert await store.digest_blob(digest) == digest


async def test_a_writer_whose_answer_was_lost_recognises_its_write(
    store: BucketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = obstore.put_async

    async def twice(*arguments: Any, **named: Any) -> Any:
        await genuine(*arguments, **named)
        return await genuine(*arguments, **named)

    monkeypatch.setattr(obstore, "put_async", twice)
    version = await store.write_cell("names", "a", b"1", expected=None)
    cell = await store.read_cell("names", "a")
    assert cell is not None
    assert (cell.version, cell.content) == (version, b"1")
    with pytest.raises(CellChanged):
        await store.write_cell("names", "a", b"2", expected=None)


async def test_an_object_that_is_no_cell_of_ours_is_damaged(store: BucketStore, prefix: str) -> None:
    await obstore.put_async(store._store, f"{prefix}/names/a", b"short")
    with pytest.raises(CellDamaged):
        await store.read_cell("names", "a")


async def test_a_wrong_key_is_refused_without_showing_it(server: ObjectServer, tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text(server.credentials_path.read_text().replace(SECRET, "wrong-secret"))
    settings = server.settings("x").model_copy(update={"credentials_path": credentials})
    store = BucketStore(settings, tmp_path / "local")
    with pytest.raises(StoreUnavailable) as caught:
        await store.start()
    assert "wrong-secret" not in str(caught.value)
    await store.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"access_key_id": "a"}', "secret_access_key: Field required"),
        ('{"access_key_id": "a", "secret_access_key": "hidden", "more": 1}', "Extra inputs"),
        ('{"access_key_id": "a", "secret_access_key": hidden}', "JSON"),
        ("\0\xff", "JSON"),
    ],
)
async def test_a_credentials_file_that_is_none(server: ObjectServer, tmp_path: Path, content: str, words: str) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_bytes(content.encode("latin-1"))
    store = BucketStore(server.settings("x").model_copy(update={"credentials_path": credentials}), tmp_path / "local")
    with pytest.raises(StoreUnfit, match=words) as caught:
        await store.start()
    assert "hidden" not in str(caught.value)
    await store.close()


async def test_a_server_that_does_not_answer_is_unavailable_in_bounded_time(
    server: ObjectServer, tmp_path: Path
) -> None:
    settings = server.settings("x").model_copy(
        update={"endpoint": "http://127.0.0.1:9", "max_retries": 1, "timeout_seconds": 5}
    )
    store = BucketStore(settings, tmp_path / "local")
    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable):
            await store.start()
    await store.close()


async def test_a_service_that_ignores_conditions_is_refused(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = obstore.put_async

    async def unconditional(*arguments: Any, mode: Any = None, **named: Any) -> Any:
        return await genuine(*arguments, **named)

    monkeypatch.setattr(obstore, "put_async", unconditional)
    store = BucketStore(server.settings("careless"), tmp_path / "local")
    with pytest.raises(StoreUnfit, match="conditions"):
        await store.start()
    await store.close()


async def test_without_conditional_writes_one_node_still_compares(server: ObjectServer, tmp_path: Path) -> None:
    settings = server.settings("single").model_copy(update={"conditional_writes": False})
    store = BucketStore(settings, tmp_path / "local")
    await store.start()
    version = await store.write_cell("names", "a", b"1", expected=None)
    with pytest.raises(CellChanged):
        await store.write_cell("names", "a", b"2", expected=None)
    await store.write_cell("names", "a", b"2", expected=version)
    await store.close()


async def test_damage_in_the_bucket_is_found(parts: Parts, other: Parts, prefix: str) -> None:
    made = await publish(parts.repository, b"whole")
    store = other.repository._store
    assert isinstance(store, BucketStore)
    key = f"{prefix}/layers/sha256/{record_of(b'whole').digest.removeprefix('sha256:')}"
    await obstore.put_async(store._store, key, b"wrong")
    with pytest.raises(SnapshotDamaged, match=digest_of(b"whole")):
        await other.repository.verify(made.snapshot_id)
