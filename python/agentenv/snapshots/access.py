"""The way to the index and the ledger: their threads, so that a long change never keeps a reader waiting."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from agentenv.base.aio import BlockingPool
from agentenv.snapshots import schema
from agentenv.snapshots.index import Index
from agentenv.snapshots.ledger import Ledger

_Parameters = ParamSpec("_Parameters")
_T = TypeVar("_T")


class Access:
    """Two connections to one file, each with a thread of its own: one changes, one reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changes = BlockingPool("snapshots-index", 1)
        self._reads = BlockingPool("snapshots-lists", 1)
        self._connections = ExitStack()

    async def open(self) -> Self:
        """Open the file; one that is damaged is made anew."""
        writer = await self._changes.run(schema.connect, self._path)
        self._connections.callback(writer.close)
        reader = await self._reads.run(schema.connect, self._path)
        self._connections.callback(reader.close)
        self._index, self._ledger, self._reader = Index(writer), Ledger(writer), Index(reader)
        return self

    def close(self) -> None:
        """End the threads, then close the file."""
        self._changes.close()
        self._reads.close()
        self._connections.close()

    async def read(
        self,
        question: Callable[Concatenate[Index, _Parameters], _T],
        *arguments: _Parameters.args,
        **named: _Parameters.kwargs,
    ) -> _T:
        """Ask the index what is quickly answered; the answer knows every change that has returned."""
        return await self._reads.run(lambda: question(self._reader, *arguments, **named))

    async def change(
        self,
        change: Callable[Concatenate[Index, _Parameters], _T],
        *arguments: _Parameters.args,
        **named: _Parameters.kwargs,
    ) -> _T:
        """Change the index, or ask it what takes long."""
        return await self._changes.run(lambda: change(self._index, *arguments, **named))

    async def ledger(
        self,
        work: Callable[Concatenate[Ledger, _Parameters], _T],
        *arguments: _Parameters.args,
        **named: _Parameters.kwargs,
    ) -> _T:
        """Read or change the ledger."""
        return await self._changes.run(lambda: work(self._ledger, *arguments, **named))

    async def think(self, work: Callable[[], _T]) -> _T:
        """Do something in the thread of the changes that would keep the event loop from others."""
        return await self._changes.run(work)
