"""Kill -9 at every step of every verb: nothing is half there afterwards, and nothing is left behind."""

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agentenv.objects.directory import DirectoryStore
from agentenv.snapshots.base import SnapshotManifest, SnapshotQuery
from agentenv.snapshots.errors import SnapshotNotFound
from agentenv.snapshots.opening import KINDS, Parts
from support.clock import FakeClock
from support.killing import Killed, Killer, killing
from support.repository_contract import blobs, collect_all
from support.snapshots import make_manifest, open_parts, publish, record_of, write_files

PARENT = (b"1", b"2")
CHILD = (b"1", b"2", b"3")


async def _publish(parts: Parts, parent: SnapshotManifest, child: SnapshotManifest) -> None:
    new = await write_files(parts.repository, child.snapshot_id, [b"3"])
    await parts.repository.publish(child, new)


async def _delete(parts: Parts, parent: SnapshotManifest, child: SnapshotManifest) -> None:
    await parts.repository.delete(parent.snapshot_id)


async def _collect(parts: Parts, parent: SnapshotManifest, child: SnapshotManifest) -> None:
    await parts.repository.delete(parent.snapshot_id)
    await parts.repository.collect()
    parts.collector._clock.elapsed += 101  # type: ignore[attr-defined]
    await parts.repository.collect()
    parts.collector._clock.elapsed += 101  # type: ignore[attr-defined]
    await parts.repository.collect()


Verb = Callable[[Parts, SnapshotManifest, SnapshotManifest], Awaitable[None]]


@pytest.mark.parametrize("loses_index", [False, True])
@pytest.mark.parametrize("verb", [_publish, _delete, _collect])
async def test_kill_at_every_step(
    verb: Verb, loses_index: bool, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, was_killed = 0, True
    while was_killed:
        at += 1
        directory = tmp_path / str(at)
        parent, child, was_killed = await _run_killed(verb, directory, clock, monkeypatch, at)
        if loses_index:
            (directory / "local/index.db").unlink()
        await _check_next_start(verb, directory, clock, parent, child)
    assert at > 5


async def _run_killed(
    verb: Verb, directory: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, at: int
) -> tuple[SnapshotManifest, SnapshotManifest, bool]:
    store = DirectoryStore(directory / "store", node="node-a", kinds=KINDS)
    async with open_parts(store, directory / "local", clock) as parts:
        parent = await publish(parts.repository, *PARENT, names=("x:default",))
        child = make_manifest(*CHILD, parent_id=parent.snapshot_id, names=("x:default",))
        killer = Killer(at)
        with killing(killer, monkeypatch), contextlib.suppress(Killed):
            await verb(parts, parent, child)
    return parent, child, killer.has_killed


async def _check_next_start(
    verb: Verb, directory: Path, clock: FakeClock, parent: SnapshotManifest, child: SnapshotManifest
) -> None:
    store = DirectoryStore(directory / "store", node="node-a", kinds=KINDS)
    async with open_parts(store, directory / "local", clock) as parts:
        repository = parts.repository
        there = {summary.snapshot_id for summary in (await repository.list(SnapshotQuery())).snapshots}
        for snapshot_id in there:
            await repository.verify(snapshot_id)
        if verb is _publish:
            assert parent.snapshot_id in there
            assert await repository.resolve("x") in there
            # Whoever published tries again: with the files where they are left, else without.
            workspace = Path(directory / "store/nodes/node-a/incoming" / child.snapshot_id)
            files = {record_of(b"3").digest: workspace / "0"} if (workspace / "0").exists() else {}
            if files or record_of(b"3") in await blobs(parts):
                await repository.publish(child, files)
                assert await repository.resolve("x") == child.snapshot_id
                await repository.verify(child.snapshot_id)
        else:
            with contextlib.suppress(SnapshotNotFound):
                await repository.delete(parent.snapshot_id)
            with pytest.raises(SnapshotNotFound):
                await repository.resolve("x")
        await repository.settle((), ())
        await collect_all(parts, clock)
        left = (await repository.list(SnapshotQuery())).snapshots
        needed = {record for one in left for record in (await repository.get(one.snapshot_id)).records()}
        assert await blobs(parts) == needed
        assert await store.aside() == {}
        assert list((directory / "store/nodes/node-a").glob("*/*")) == []
