"""A live sandbox: what it holds, and how all of it is given back in reverse."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from agentenv.base import aio, log
from agentenv.base.ids import SandboxId
from agentenv.blocks.base import BlockStore, Disk
from agentenv.guest.base import GuestAddress
from agentenv.network.base import Slot
from agentenv.runtime.base import Ended, LiveHandle
from agentenv.vmm.base import Machine

_log = log.get("runtime")


class Holdings:
    """The resources of one sandbox, given back in reverse; each step is bounded in time, and none stops the next."""

    def __init__(self, sandbox_id: SandboxId, step_seconds: float) -> None:
        self._sandbox_id = sandbox_id
        self._step_seconds = step_seconds
        self._stack = AsyncExitStack()

    def push(self, what: str, give_back: Callable[[], Awaitable[object]]) -> None:
        """Remember how to give `what` back."""

        async def step() -> None:
            try:
                async with aio.bounded_cleanup(self._step_seconds):
                    await give_back()
            except Exception:  # noqa: BLE001 - the steps after this one must run; the next start collects the rest
                _log.exception("give_back_failed", sandbox_id=self._sandbox_id, what=what)

        self._stack.push_async_callback(step)

    async def give_back(self) -> None:
        """Give everything back. Can be called again; goes on to the end when the caller is cancelled."""
        await aio.finish(self._stack.aclose())

    def let_go(self) -> None:
        """Forget everything without giving it back: another process will adopt it."""
        self._stack.pop_all()


@dataclass(slots=True)
class Live:
    """A sandbox whose guest has answered."""

    sandbox_id: SandboxId
    slot: Slot
    disk: Disk
    machine: Machine
    blocks: BlockStore
    holdings: Holdings
    memory_name: str | None = None

    @property
    def address(self) -> GuestAddress:
        """Where the daemon of this guest answers."""
        return GuestAddress(self.slot.address)

    @property
    def handle(self) -> LiveHandle:
        """What a later process needs to adopt this sandbox."""
        return LiveHandle(slot_index=self.slot.index, machine=self.machine.handle, memory_name=self.memory_name)

    async def wait_ended(self) -> Ended:
        """Return when the machine is no more, or can be no more because its disk is lost, and why."""
        lost = await aio.unless(self.blocks.wait_lost(self.sandbox_id), self.machine.ended)
        if lost is not None:
            return Ended("disk_lost", lost[0])
        end = self.machine.ended.result()
        return Ended(end.cause.value, end.detail)

    async def end(self) -> None:
        """Kill the machine and give everything back."""
        await self.holdings.give_back()

    async def detach(self) -> None:
        """Leave everything running for another process."""
        self.holdings.let_go()
        await self.machine.detach()
