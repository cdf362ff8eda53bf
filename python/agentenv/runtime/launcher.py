"""Turns a plan into a live sandbox, or gives back everything it took.

Acquires in one order: slot, disk, directory, machine, guest; `Holdings` gives back in the other.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from agentenv.base import aio, log, metrics, trees
from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.blocks.base import Disk, PlainDisks
from agentenv.guest.base import BootFiles, GuestMetrics
from agentenv.guest.client import GuestClient
from agentenv.network.base import GuestIdentity, Network, Slot
from agentenv.runtime.base import AdoptPlan, LaunchPlan
from agentenv.runtime.errors import GuestNotReady, GuestPanicked, LaunchFailed
from agentenv.runtime.live import Holdings, Live
from agentenv.runtime.settings import RuntimeSettings
from agentenv.vmm.base import DiskAttachment, Driver, EndCause, MachineSpec, TapAttachment

_log = log.get("runtime")
_EVIDENCE_BYTES = 4096
_boots_repeated = metrics.counter("aenv_runtime_boots_repeated", "Boots begun again after a panic of the guest.")


class Launcher:
    """Starts, adopts and collects live sandboxes. Owns the directory in which each has one of its own."""

    def __init__(
        self,
        *,
        directory: Path,
        network: Network,
        blocks: PlainDisks,
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
            _boots_repeated.inc()
            _log.warning("boot_repeated", sandbox_id=plan.sandbox_id)
            return await self._launch_once(plan)

    async def _launch_once(self, plan: LaunchPlan) -> Live:
        begin = self._clock.monotonic()
        holdings = self._new_holdings(plan.sandbox_id)
        try:
            live = await self._acquire(plan, holdings)
            await self._make_ready(plan, live)
        except BaseException:
            await holdings.give_back()
            raise
        _log.info("sandbox_launched", sandbox_id=plan.sandbox_id, took_ms=self._milliseconds_since(begin))
        return live

    async def _acquire(self, plan: LaunchPlan, holdings: Holdings) -> Live:
        slot = await self._network.acquire(plan.egress)
        holdings.push("network slot", lambda: self._network.release(slot))
        holdings.push("disk", lambda: self._blocks.remove(plan.sandbox_id))
        disk = await self._blocks.create(plan.sandbox_id, plan.image.disk, owner=slot.owner)
        directory = self._own_directory(plan.sandbox_id)
        holdings.push("directory", lambda: asyncio.to_thread(trees.remove, directory))
        directory.mkdir(parents=True, mode=0o700)  # the driver says who else may pass through
        machine = await self._driver.boot(self._spec(plan, slot, disk, directory))
        holdings.push("machine", machine.kill)
        return Live(plan.sandbox_id, slot, disk, machine, holdings)

    def _spec(self, plan: LaunchPlan, slot: Slot, disk: Disk, directory: Path) -> MachineSpec:
        return MachineSpec(
            name=plan.sandbox_id,
            directory=directory,
            kernel=self._boot_files.kernel,
            initramfs=self._boot_files.initramfs,
            command_line=guest_command_line(slot.guest, plan.setup.hostname),
            vcpus=plan.vcpus,
            memory_mib=plan.memory_mib,
            disks=(DiskAttachment(disk.path, disk.format.value, is_scratch=True),),
            network=TapAttachment(slot.namespace, slot.tap, slot.guest.mac),
            uid=slot.owner,
        )

    async def _make_ready(self, plan: LaunchPlan, live: Live) -> None:
        try:
            async with asyncio.timeout(self._settings.boot_timeout_seconds):
                answered = await aio.unless(self._initialise(plan, live), live.machine.ended)
        except TimeoutError as error:
            console = live.machine.console_tail(1024).strip()
            _log.warning("guest_not_ready", sandbox_id=plan.sandbox_id, console=console)
            raise GuestNotReady(
                f"the guest of sandbox {plan.sandbox_id} did not answer within "
                f"{self._settings.boot_timeout_seconds:g} s of its start; its console is in the server's log"
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
        await self._guest.wait_ready(live.address)
        await self._guest.initialise(live.address, plan.setup, current_token=None)

    async def adopt(self, plan: AdoptPlan) -> Live | None:
        """Take over a sandbox that an earlier process started; None when it is not whole any more.

        What is left of one that is not whole has been given back then.
        """
        holdings = self._new_holdings(plan.sandbox_id)
        directory = self._own_directory(plan.sandbox_id)
        try:
            slot = await self._network.adopt(plan.handle.slot_index, plan.egress)
            holdings.push("network slot", lambda: self._network.release(slot))
            holdings.push("disk", lambda: self._blocks.remove(plan.sandbox_id))
            holdings.push("directory", lambda: asyncio.to_thread(trees.remove, directory))
            machine = await self._driver.adopt(plan.handle.machine)
            if machine is not None:
                holdings.push("machine", machine.kill)
            disk = await self._blocks.find(plan.sandbox_id)
        except AgentEnvError as error:
            _log.warning("adoption_failed", sandbox_id=plan.sandbox_id, reason=error.message)
            await _abandon(plan, holdings)
            return None
        except BaseException:
            holdings.let_go()  # cancelled: what runs goes on running for the next process
            raise
        if machine is None or disk is None or machine.ended.done():
            await _abandon(plan, holdings)
            return None
        return Live(plan.sandbox_id, slot, disk, machine, holdings)

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

    async def metrics(self, live: Live, token: str) -> GuestMetrics:
        """Return the counters of a live guest."""
        return await self._guest.metrics(live.address, token)

    def _new_holdings(self, sandbox_id: SandboxId) -> Holdings:
        return Holdings(sandbox_id, self._settings.teardown_timeout_seconds)

    def _own_directory(self, sandbox_id: SandboxId) -> Path:
        return self._directory / sandbox_id

    def _milliseconds_since(self, begin: float) -> int:
        return round((self._clock.monotonic() - begin) * 1000)


def guest_command_line(guest: GuestIdentity, hostname: str) -> str:
    """Return what our initramfs reads from the kernel command line: address, gateway, resolver, host name."""
    return " ".join(
        (
            f"aenv.address={guest.address}/{guest.network.prefixlen}",
            f"aenv.gateway={guest.gateway}",
            f"aenv.dns={guest.gateway}",
            f"aenv.hostname={hostname}",
        )
    )


async def _abandon(plan: AdoptPlan, holdings: Holdings) -> None:
    """End the process first, by what was written down of it: a hostile one can change what it looks like."""
    plan.handle.machine.process.kill()
    await holdings.give_back()


def _subdirectories(directory: Path) -> Iterable[Path]:
    return [entry for entry in directory.iterdir() if entry.is_dir()] if directory.is_dir() else []
