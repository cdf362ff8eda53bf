"""What processes of their own do to a store that others use at the same time."""

import asyncio
import os
from pathlib import Path

from agentenv.objects.directory import DirectoryStore
from agentenv.objects.errors import CellChanged


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
