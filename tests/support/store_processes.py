"""What processes of their own do to a store that others use at the same time."""

import asyncio
import itertools
import os
from pathlib import Path

from agentenv.base.clock import SystemClock
from agentenv.objects.directory import DirectoryStore
from agentenv.objects.errors import CellChanged
from agentenv.snapshots.opening import KINDS
from support.snapshots import open_parts, publish


def add_one_often(root: str, times: int) -> None:
    async def work() -> None:
        store = DirectoryStore(Path(root), node=f"node-{os.getpid()}", kinds=("names", "manifests"))
        await store.start()
        for _ in range(times):
            while True:
                cell = await store.read_cell("names", "counter")
                number = int(cell.content) if cell else 0
                try:
                    await store.write_cell(
                        "names", "counter", str(number + 1).encode(), expected=cell.version if cell else None
                    )
                except CellChanged:
                    continue
                break
        await store.close()

    asyncio.run(work())


def publish_and_delete(root: str, node: str, ready: str, turns: int | None) -> None:
    """Publish snapshots and delete every second, `turns` times or until killed; write acknowledged ids to `ready`."""

    async def work() -> None:
        store = DirectoryStore(Path(root) / "store", node=node, kinds=KINDS)
        async with open_parts(store, Path(root) / node, SystemClock(), node=node, grace_seconds=0.2) as parts:
            with Path(ready).open("a", buffering=1) as acknowledged:
                for turn in itertools.count() if turns is None else range(turns):
                    content = f"{node} {turn}".encode()
                    made = await publish(parts.repository, b"shared", content, names=("newest:default",))
                    acknowledged.write(f"published {made.snapshot_id}\n")
                    if turn % 2:
                        acknowledged.write(f"deleting {made.snapshot_id}\n")
                        await parts.repository.delete(made.snapshot_id)
                        acknowledged.write(f"deleted {made.snapshot_id}\n")
                    if turn % 5 == 4:
                        await parts.repository.collect()

    asyncio.run(work())
