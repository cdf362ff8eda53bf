"""How the memory of a stopped guest is taken: copied while it stands still, or frozen and copied afterwards."""

from dataclasses import dataclass, replace

import agentenv_core as core
from agentenv.base import log
from agentenv.vmm.errors import CaptureFailed
from agentenv.vmm.memory import Changes, GuestMemory, MemoryReader, NewLayer, whole
from agentenv.vmm.qemu.plan import CapturePlan, Selection
from agentenv.vmm.qemu.preload import FrozenCopy, Preload

_log = log.get("vmm")


@dataclass(frozen=True, slots=True)
class TakenMemory:
    """Memory as it was in the frozen moment: in a layer file already, or in a process that stands still."""

    memory: GuestMemory
    pages: core.MemoryPages
    new: NewLayer
    written: core.MemoryLayer | None
    frozen: FrozenCopy | None

    async def complete(self, reader: MemoryReader) -> core.MemoryLayer:
        """Return the layer when its file is whole. Raises `CaptureFailed`."""
        if self.written is not None:
            return self.written
        return await reader.write(self.memory, self.pages, self.new, is_hashed=True)

    async def release(self) -> None:
        """End the process that stands still, if there is one. Can be called again."""
        if self.frozen is not None:
            await self.frozen.end()


async def take(
    reader: MemoryReader,
    memory: GuestMemory,
    plan: CapturePlan,
    new: NewLayer,
    *,
    preload: Preload | None,
    is_tracked: bool,
) -> TakenMemory:
    """Take the pages that the plan says. The virtual CPUs stand still. Raises `CaptureFailed`, and leaves no file."""
    pages = await reader.scan(memory, _changes(plan.selection, is_tracked=is_tracked))
    if plan.selection is Selection.EVERYTHING:
        pages = whole(memory)
    frozen = await _freeze(preload, memory)
    if frozen is not None:
        return TakenMemory(replace(memory, process=frozen.process), pages, new, None, frozen)
    # The digest is computed later, when the guest runs again.
    written = await reader.write(memory, pages, new, is_hashed=False)
    return TakenMemory(memory, pages, new, written, None)


def _changes(selection: Selection, *, is_tracked: bool) -> Changes:
    if selection is Selection.WRITTEN:
        return "since_last_scan"
    return "since_start_and_track" if is_tracked else "since_start"


async def _freeze(preload: Preload | None, memory: GuestMemory) -> FrozenCopy | None:
    if preload is None:
        return None
    try:
        return await preload.freeze(memory)
    except CaptureFailed as error:
        # Out of memory for page tables, for one. A longer stop is better than no capture.
        _log.warning("guest_not_frozen", reason=error.message)
        return None
