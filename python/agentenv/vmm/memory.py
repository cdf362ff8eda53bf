"""The memory of a guest, taken from outside by the Rust half. Knows no monitor; the only user of `agentenv_core` here.

Calls run in a few threads of their own, and end soon when their caller is cancelled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import agentenv_core as core
from agentenv.base.aio import BlockingPool
from agentenv.base.process import ProcessIdentity
from agentenv.vmm.errors import CaptureFailed

_T = TypeVar("_T")

Changes = Literal["since_start", "since_start_and_track", "since_last_scan"]


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """Where the memory of a guest lies in a process: its monitor, or a frozen copy of that."""

    process: ProcessIdentity
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NewLayer:
    """A memory layer to be written: its file, its identifier, and what lies below it.

    `compares`: pages that read the same in the layers below are left out.
    """

    path: Path
    layer_id: str
    parent_id: str | None
    below: tuple[Path, ...] | None
    compares: bool


class MemoryReader:
    """Scans and copies guests' memory, a few at a time."""

    def __init__(self, threads: int) -> None:
        self._pool = BlockingPool("memory", threads)

    async def scan(self, memory: GuestMemory, changes: Changes) -> core.MemoryPages:
        """Return the pages that changed, as the kernel knows it. Raises `CaptureFailed`."""
        process = memory.process
        return await self._run(
            lambda _: core.scan_memory(
                process.pid, process.start_ticks, memory.address, memory.size_bytes, changes=changes
            )
        )

    async def write(
        self, memory: GuestMemory, pages: core.MemoryPages, new: NewLayer, *, is_hashed: bool
    ) -> core.MemoryLayer:
        """Write pages as a layer, which is not durable yet. No file is left when it raises `CaptureFailed`."""
        process = memory.process
        return await self._run(
            lambda token: core.write_memory(
                process.pid,
                process.start_ticks,
                memory.address,
                memory.size_bytes,
                pages,
                new.path,
                below=new.below,
                compare=new.compares,
                layer_id=new.layer_id,
                parent_id=new.parent_id,
                hashed=is_hashed,
                token=token,
            )
        )

    async def make_durable(self, path: Path, digest: str | None = None) -> str:
        """Make a file and its name durable; return its digest, computed unless given."""
        computed = await self._run(lambda token: core.make_durable(path, hashed=digest is None, token=token))
        known = digest or computed
        assert known is not None, "what is not given is computed"
        return known

    async def identify_top(self, layers: Sequence[Path]) -> str | None:
        """Return the identifier that the highest layer carries, if it carries one."""
        return await self._run(lambda _: core.inspect(layers[-1]).layer_id)

    async def _run(self, work: Callable[[core.CancellationToken], _T]) -> _T:
        token = core.CancellationToken()
        try:
            return await self._pool.run_stoppable(lambda: work(token), token.cancel)
        except core.CoreError as error:
            raise CaptureFailed(f"the memory of the guest could not be taken: {error}") from error


def whole(memory: GuestMemory) -> core.MemoryPages:
    """Return all pages of a memory."""
    return core.MemoryPages.whole(memory.size_bytes)
