"""Real processes on one directory at once, and real kill -9."""

import multiprocessing
import os
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from agentenv.objects.directory import DirectoryStore
from agentenv.snapshots.base import SnapshotQuery
from agentenv.snapshots.opening import KINDS
from support import store_processes
from support.clock import FakeClock
from support.repository_contract import blobs, collect_all
from support.snapshots import open_parts

_START_SECONDS = 60


def start(root: Path, node: str, turns: int | None, *, life: int = 0) -> tuple[BaseProcess, Path]:
    ready = root / f"{node}.{life}"
    ready.touch()
    process = multiprocessing.get_context("spawn").Process(
        target=store_processes.publish_and_delete, args=(str(root), node, str(ready), turns)
    )
    process.start()
    return process, ready


def acknowledged(ready: Path) -> tuple[set[str], set[str]]:
    """What must be there, and what must not; what was being deleted may be either."""
    published: set[str] = set()
    deleted: set[str] = set()
    for line in ready.read_text().splitlines():
        verb, snapshot_id = line.split()
        match verb:
            case "published":
                published.add(snapshot_id)
            case "deleting":
                published.remove(snapshot_id)
            case "deleted":
                deleted.add(snapshot_id)
    return published, deleted


async def check(root: Path, readies: list[Path], clock: FakeClock) -> None:
    store = DirectoryStore(root / "store", node="checker", kinds=KINDS)
    async with open_parts(store, root / "checker", clock, node="checker", lease_expiry_seconds=50) as parts:
        found: set[str] = set()
        after = None
        while True:
            page = await parts.repository.list(SnapshotQuery(), after=after)
            found |= {summary.snapshot_id for summary in page.snapshots}
            after = page.following
            if after is None:
                break
        for ready in readies:
            published, deleted = acknowledged(ready)
            assert published <= found
            assert not deleted & found
        needed = set()
        for snapshot_id in found:
            await parts.repository.verify(snapshot_id)  # type: ignore[arg-type]
            needed |= set((await parts.repository.get(snapshot_id)).records())  # type: ignore[arg-type]
        await collect_all(parts, clock)
        assert await blobs(parts) == needed
        assert await store.aside() == {}


async def test_two_processes_at_once_lose_nothing(tmp_path: Path, clock: FakeClock) -> None:
    started = [start(tmp_path, node, 25) for node in ("node-a", "node-b")]
    for process, _ in started:
        process.join(120)
        assert process.exitcode == 0
    await check(tmp_path, [ready for _, ready in started], clock)


async def test_kill_at_random_moments_loses_nothing_that_was_acknowledged(tmp_path: Path, clock: FakeClock) -> None:
    chance = random.Random(5)
    readies: list[Path] = []
    for life in range(5):
        process, ready = start(tmp_path, "node-a", None, life=life)
        readies.append(ready)
        deadline = time.monotonic() + _START_SECONDS
        enough = chance.randint(1, 2000)
        while ready.stat().st_size < enough:
            assert time.monotonic() < deadline
            assert process.is_alive()
            time.sleep(0.001)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    await check(tmp_path, readies, clock)
