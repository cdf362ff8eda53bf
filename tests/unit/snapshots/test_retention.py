"""Which snapshots go by themselves."""

from datetime import timedelta
from pathlib import Path

from agentenv.objects.directory import DirectoryStore
from agentenv.snapshots.base import SnapshotKind, SnapshotQuery
from agentenv.snapshots.opening import KINDS
from support.clock import FakeClock
from support.snapshots import open_parts, publish


async def test_old_snapshots_go_unless_named_built_upon_or_paused(tmp_path: Path, clock: FakeClock) -> None:
    store = DirectoryStore(tmp_path / "store", node="node-a", kinds=KINDS)
    async with open_parts(store, tmp_path / "local", clock, retention_seconds=100) as parts:
        repository = parts.repository
        clock.elapsed = 1000.0
        old, young = clock.now() - timedelta(seconds=101), clock.now() - timedelta(seconds=99)
        parent = (await publish(repository, b"1", created_at=old)).snapshot_id
        kept = {
            parent,
            (await publish(repository, b"2", created_at=old, names=("x:default",))).snapshot_id,
            (await publish(repository, b"3", created_at=old, kind=SnapshotKind.PAUSE)).snapshot_id,
            (await publish(repository, b"4", created_at=young, parent_id=parent)).snapshot_id,
        }
        await publish(repository, b"5", created_at=old)
        assert await parts.retention.turn() == 1
        assert {one.snapshot_id for one in (await repository.list(SnapshotQuery(kind=None))).snapshots} == kept


async def test_without_a_retention_nothing_goes(tmp_path: Path, clock: FakeClock) -> None:
    store = DirectoryStore(tmp_path / "store", node="node-a", kinds=KINDS)
    async with open_parts(store, tmp_path / "local", clock) as parts:
        await publish(parts.repository, b"1", created_at=clock.now() - timedelta(days=1000))
        assert await parts.retention.turn() == 0
