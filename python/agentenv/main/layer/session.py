"""Runs work on layer files for a command: threads, a bar on the terminal, and an end when the user asks for it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from agentenv.base.aio import BlockingPool
from agentenv.blocks import layers
from agentenv.blocks.layers import LayerFiles
from agentenv.client.text import printable

_T = TypeVar("_T")
_NAME_CHARACTERS = 40

OpenBar = Callable[[str], contextlib.AbstractContextManager[layers.Progress | None]]


def run(work: Callable[[LayerFiles, OpenBar], Awaitable[_T]]) -> _T:
    """Run `work`, which gets the hands for layers and a way to show progress; Ctrl-C ends it and leaves no file."""

    async def body() -> _T:
        pool = BlockingPool("layer", 1)
        try:
            return await work(LayerFiles(pool), _open_bar)
        finally:
            pool.close()

    return asyncio.run(body())


@contextlib.contextmanager
def _open_bar(name: str) -> Iterator[layers.Progress | None]:
    """Show a bar on standard error for as long as the context lasts; nothing where that is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(printable(name, _NAME_CHARACTERS), total=None)

    def show(done: int, total: int) -> None:
        # What is done at once needs no bar.
        if done < total:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()
