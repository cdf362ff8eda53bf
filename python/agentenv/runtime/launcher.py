"""Turns a plan into a live sandbox, or gives back everything it took.

Acquires in one order: slot, disk and memory image, directory, machine, guest; `Holdings` gives back in the other.
"""

import asyncio
from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path
from typing import assert_never

from agentenv.base import aio, log, metrics, trees
from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.blocks.base import BlockStore, Disk
from agentenv.guest.base import BootFiles, GuestMetrics
from agentenv.guest.client import GuestClient
from agentenv.network.base import GuestIdentity, Network, Slot
from agentenv.runtime.base import AdoptPlan, Boot, Captured, CapturePlan, LaunchPlan, Restore
from agentenv.runtime.capture import Capturer
from agentenv.runtime.errors import GuestNotReady, GuestPanicked, LaunchFailed
from agentenv.runtime.live import Holdings, Live
from agentenv.runtime.memory_images import MemoryImages
from agentenv.runtime.settings import RuntimeSettings
from agentenv.runtime.specification import Place, machine_spec
from agentenv.vmm.base import Driver, EndCause, Machine, RestoreSource

_log = log.get("runtime")
_EVIDENCE_BYTES = 4096
_boots_repeated = metrics.counter("aenv_runtime_boots_repeated", "Boots begun again after a panic of the guest.")
# A driver judges a saved machine before there is a place for it; none of this matters to it.
_NO_SLOT = Slot(0, "none", "none", 0, IPv4Address(0), GuestIdentity())
_NO_DISK = Disk(Path("/nonexistent"), 0)


class Launcher:
    """Starts, captures, adopts and collects live sandboxes. Owns the directory in which each has one of its own."""

    def __init__(
        self,
        *,
        directory: Path,
        network: Network,
        blocks: BlockStore,
        driver: Driver,
        guest: GuestClient,
        boot_files: BootFiles,
        settings: RuntimeSettings,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._network = network
        self._blocks = blocks
        self._driver = driver
        self._guest = guest
        self._boot_files = boot_files
        self._settings = settings
        self._clock = clock
        self._images = MemoryImages(blocks, clock, idle_seconds=settings.memory_image_idle_seconds)
        self._capturer = Capturer(blocks, guest, sync_seconds=settings.guest_sync_timeout_seconds)

    def check(self, plan: LaunchPlan) -> None:
        """Raise `SnapshotUnfit` when the plan restores what cannot go on here; touches nothing."""
        if isinstance(plan.origin, Restore):
            place = Place(self._own_directory(plan.sandbox_id), _NO_SLOT, _NO_DISK)
            self._driver.check(machine_spec(plan, self._boot_files, place), plan.origin.facts)

    async def launch(self, plan: LaunchPlan) -> Live:
        """Start a sandbox and return when its daemon has been initialised.

        Raises `LaunchFailed` or `GuestNotReady`, or what a part raised when it is about limits; nothing is left
        behind then, nor when the caller is cancelled.

        A kernel that panics while it boots is given a second try, with everything taken anew: on a busy host an
        emulated guest was seen to do so in 1 of 85 boots, for an unknown reason, and nothing is lost by trying again.
        """
        try:
            return await self._launch_once(plan)
        except GuestPanicked:
            if not isinstance(plan.origin, Boot):
                raise
            _boots_repeated.inc()
            _log.warning("boot_repeated", sandbox_id=plan.sandbox_id)
            return await self._launch_once(plan)

    async def _launch_once(self, plan: LaunchPlan) -> Live:
        self.check(plan)
        begin = self._clock.monotonic()
        holdings = self._new_holdings(plan.sandbox_id)
        try:
            live = await self._acquire(plan, holdings)
            started_ms = self._milliseconds_since(begin)
            await self._make_ready(plan, live)
        except BaseException:
            await holdings.give_back()
            raise
        _log.info(
            "sandbox_launched",
            sandbox_id=plan.sandbox_id,
            origin=type(plan.origin).__name__.lower(),
            machine_ms=started_ms,
            took_ms=self._milliseconds_since(begin),
        )
        return live

    async def _acquire(self, plan: LaunchPlan, holdings: Holdings) -> Live:
        match plan.origin:
            case Boot():
                place = await self._take_place(plan, holdings)
                machine = await self._driver.boot(machine_spec(plan, self._boot_files, place))
                memory_name = None
            case Restore() as origin:
                place, memory = await aio.together(
                    self._take_place(plan, holdings), self._open_memory(origin, holdings)
                )
                source = RestoreSource(origin.device_state, memory, origin.facts)
                machine = await self._driver.restore(machine_spec(plan, self._boot_files, place), source)
                memory_name = origin.memory_name
            case _:
                assert_never(plan.origin)
        holdings.push("machine", machine.kill)
        return Live(plan.sandbox_id, place.slot, place.disk, machine, self._blocks, holdings, memory_name)

    async def _take_place(self, plan: LaunchPlan, holdings: Holdings) -> Place:
        slot = await self._network.acquire(plan.egress)
        holdings.push("network slot", lambda: self._network.release(slot))
        holdings.push("disk", lambda: self._blocks.remove(plan.sandbox_id))
        disk = await self._blocks.create(plan.sandbox_id, plan.origin.disk, owner=slot.owner)
        directory = self._own_directory(plan.sandbox_id)
        holdings.push("directory", lambda: asyncio.to_thread(trees.remove, directory))
        directory.mkdir(parents=True, mode=0o700)  # the driver says who else may pass through
        return Place(directory, slot, disk)

    async def _open_memory(self, origin: Restore, holdings: Holdings) -> Path:
        image = await self._images.open(origin.memory_name, origin.memory)
        holdings.push("memory image", lambda: self._images.release(origin.memory_name))
        return image

    async def _make_ready(self, plan: LaunchPlan, live: Live) -> None:
        restored = isinstance(plan.origin, Restore)
        seconds = self._settings.restore_timeout_seconds if restored else self._settings.boot_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                answered = await aio.unless(self._initialise(plan, live), live.machine.ended)
        except TimeoutError as error:
            console = live.machine.console_tail(1024).strip()
            _log.warning("guest_not_ready", sandbox_id=plan.sandbox_id, console=console)
            raise GuestNotReady(
                f"the guest of sandbox {plan.sandbox_id} did not answer within {seconds:g} s of its start; "
                "its console is in the server's log"
            ) from error
        except AgentEnvError as error:
            raise LaunchFailed(f"sandbox {plan.sandbox_id} could not be started: {error.message}") from error
        if answered is None:
            end = live.machine.ended.result()
            console = live.machine.console_tail(_EVIDENCE_BYTES).strip()
            _log.warning("machine_ended_early", sandbox_id=plan.sandbox_id, detail=end.detail, console=console)
            failure = GuestPanicked if end.cause is EndCause.GUEST_PANIC else LaunchFailed
            raise failure(f"the machine of sandbox {plan.sandbox_id} ended while it started: {end.cause}")

    async def _initialise(self, plan: LaunchPlan, live: Live) -> None:
        if isinstance(plan.origin, Restore):
            await self._guest.wait_reachable(live.address)
            await self._guest.initialise(live.address, plan.setup, current_token=plan.origin.token)
        else:
            await self._guest.wait_ready(live.address)
            await self._guest.initialise(live.address, plan.setup, current_token=None)

    async def capture(self, live: Live, plan: CapturePlan) -> Captured:
        """Take the state of a live sandbox into files; see `Capturer.capture`."""
        return await self._capturer.capture(live, plan)

    async def go_on(self, live: Live, token: str) -> None:
        """Let a sandbox run again that a capture left standing still, or may have left so. Can be called again."""
        await self._capturer.go_on(live, token)

    async def adopt(self, plan: AdoptPlan) -> Live | None:
        """Take over a sandbox that an earlier process started; None when it is not whole any more.

        What is left of one that is not whole has been given back then.
        """
        holdings = self._new_holdings(plan.sandbox_id)
        try:
            live = await self._adopt_parts(plan, holdings)
        except AgentEnvError as error:
            _log.warning("adoption_failed", sandbox_id=plan.sandbox_id, reason=error.message)
            live = None
        except BaseException:
            holdings.let_go()  # cancelled: what runs goes on running for the next process
            raise
        if live is None:
            # By what was written down of the process: a hostile one can change what it looks like.
            plan.handle.machine.process.kill()
            await holdings.give_back()
        elif plan.token is not None:
            await self.go_on(live, plan.token)
        return live

    async def _adopt_parts(self, plan: AdoptPlan, holdings: Holdings) -> Live | None:
        directory = self._own_directory(plan.sandbox_id)
        slot = await self._network.adopt(plan.handle.slot_index, plan.egress)
        holdings.push("network slot", lambda: self._network.release(slot))
        holdings.push("disk", lambda: self._blocks.remove(plan.sandbox_id))
        memory_name = plan.handle.memory_name
        if memory_name is not None:
            self._images.adopt(memory_name)
            holdings.push("memory image", lambda: self._images.release(memory_name))
        holdings.push("directory", lambda: asyncio.to_thread(trees.remove, directory))
        machine: Machine | None = await self._driver.adopt(plan.handle.machine)
        if machine is not None:
            holdings.push("machine", machine.kill)
        disk = await self._blocks.find(plan.sandbox_id)
        if machine is None or disk is None or machine.ended.done():
            return None
        return Live(plan.sandbox_id, slot, disk, machine, self._blocks, holdings, memory_name)

    async def collect(self, keep: frozenset[SandboxId]) -> list[str]:
        """Remove directories and disks that belong to no sandbox in `keep`; return what was removed.

        One that cannot be removed is logged and stays for the next time.
        """
        removed = await self._blocks.collect(keep)
        for directory in _subdirectories(self._directory):
            if directory.name in keep:
                continue
            try:
                await asyncio.to_thread(trees.remove, directory)
                removed.append(f"directory of {directory.name}")
            except OSError as error:
                _log.error("leftover_not_removed", path=str(directory), reason=error.strerror)
        return removed

    async def close_unused_images(self) -> None:
        """Close the memory images that nobody has used for a while; to be called now and then."""
        await self._images.close_unused()

    async def metrics(self, live: Live, token: str) -> GuestMetrics:
        """Return the counters of a live guest."""
        return await self._guest.metrics(live.address, token)

    def _new_holdings(self, sandbox_id: SandboxId) -> Holdings:
        return Holdings(sandbox_id, self._settings.teardown_timeout_seconds)

    def _own_directory(self, sandbox_id: SandboxId) -> Path:
        return self._directory / sandbox_id

    def _milliseconds_since(self, begin: float) -> int:
        return round((self._clock.monotonic() - begin) * 1000)


def _subdirectories(directory: Path) -> Iterable[Path]:
    return [entry for entry in directory.iterdir() if entry.is_dir()] if directory.is_dir() else []
