"""Builds a node from its settings: the mechanisms, then the lifecycle; adopts and collects before it serves."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import aio, log, trees
from agentenv.base.clock import Clock
from agentenv.base.ids import SandboxId
from agentenv.base.records import Records
from agentenv.base.units import MIB
from agentenv.blocks import program
from agentenv.guest import provision
from agentenv.guest.client import GuestClient
from agentenv.images.catalogue import DirectoryCatalogue
from agentenv.main.disks import Disks
from agentenv.main.doctor.leaks import find_monitors
from agentenv.main.home import Home
from agentenv.main.settings import Settings
from agentenv.network.pool import SlotPool
from agentenv.orchestrator import recovery
from agentenv.orchestrator.admission import Admission, Limits
from agentenv.orchestrator.deadlines import Deadlines
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.record import Book, SandboxRecord
from agentenv.orchestrator.service import Service
from agentenv.runtime.launcher import Launcher
from agentenv.snapshots.opening import open_repository
from agentenv.vmm.base import Driver
from agentenv.vmm.choice import choose_driver

_log = log.get("main")
_THREADS = 4
_MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Node:
    """What the doors need of a node, and what `doctor` shows of it."""

    service: Service
    driver: Driver


@asynccontextmanager
async def open_node(
    settings: Settings, home: Home, clock: Clock, *, cut: Callable[[SandboxId], None]
) -> AsyncIterator[Node]:
    """Build a node, take over what an earlier process left, and give everything back at the end."""
    async with AsyncExitStack() as stack:
        has_started = False
        # Whether machines run on when this process ends; they need their disks then.
        leaves_machines = True
        boot_files = provision.find_boot_files(home.path)
        pool = aio.BlockingPool("node", _THREADS)
        stack.callback(pool.close)
        supervisor = aio.Supervisor(clock)
        stack.push_async_callback(supervisor.stop)
        catalogue = DirectoryCatalogue(home.path, pool)
        await _sweep(home, catalogue, pool, clock)
        driver = await choose_driver(settings.vmm, home.path, boot_files, supervisor)
        records = Records(home.records)
        stack.push_async_callback(records.close)
        await records.open()
        guest = await stack.enter_async_context(GuestClient(clock))
        network = SlotPool(settings.network, clock=clock)
        book = Book(records)
        known = await book.read()
        _end_orphans(home, known)
        disks = Disks(settings.blocks, home, supervisor, clock)
        await disks.start()

        async def stop_disks() -> None:
            await disks.stop(detach=leaves_machines)

        stack.push_async_callback(stop_disks)
        await network.start(recovery.kept_slots(known))
        repository = await stack.enter_async_context(
            open_repository(settings.snapshots, settings.objects, home.path, clock)
        )
        launcher = Launcher(
            directory=home.sandboxes,
            network=network,
            blocks=disks.store,
            driver=driver,
            guest=guest,
            boot_files=boot_files,
            settings=settings.runtime,
            clock=clock,
        )
        fleet = Fleet(
            book=book,
            launcher=launcher,
            catalogue=catalogue,
            repository=repository,
            admission=Admission(_limits(settings)),
            deadlines=Deadlines(clock, at_once=settings.orchestrator.expiries_at_once),
            starts=asyncio.Semaphore(settings.orchestrator.max_concurrent_starts or os.cpu_count() or 1),
            supervisor=supervisor,
            clock=clock,
            settings=settings.orchestrator,
            cut=cut,
        )
        service = Service(fleet)

        async def stop() -> None:
            nonlocal leaves_machines
            # A start that failed half-way must not end what the next start could adopt.
            detach = settings.server.detach_on_stop or not has_started
            kept = await service.stop(detach=detach)
            leaves_machines = detach or bool(kept)
            await network.stop(keep=kept if has_started else recovery.kept_slots(known))

        stack.push_async_callback(stop)
        await service.start(known)
        has_started = True
        yield Node(service, driver)


async def _sweep(home: Home, catalogue: DirectoryCatalogue, pool: aio.BlockingPool, clock: Clock) -> None:
    """Delete what setup has replaced. Monitors of an earlier process keep what they have open."""
    if (home.path / "boot").is_symlink():
        return  # borrowed from another home, whose server may be using it
    now = clock.now().timestamp()
    removed: list[Path] = []
    try:
        removed += await catalogue.remove_replaced_disks(now=now)
        removed += await pool.run(lambda: provision.remove_replaced(home.path, now=now))
        removed += await pool.run(lambda: program.remove_replaced(home.programs, now=now))
        await pool.run(trees.remove, home.earlier_disks)
    except OSError as error:
        _log.error("replaced_files_not_removed", path=error.filename, reason=error.strerror)
    if removed:
        _log.info("replaced_files_removed", files=[path.name for path in removed])


def _end_orphans(home: Home, known: list[SandboxRecord]) -> None:
    """End monitors that an earlier process started and no record names."""
    wanted = {record.handle.machine.process for record in known if record.handle is not None}
    for process in find_monitors(home):
        if process not in wanted:
            _log.warning("orphan_ended", pid=process.pid)
            process.kill()


def _limits(settings: Settings) -> Limits:
    orchestrator = settings.orchestrator
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB
    return Limits(
        sandboxes=orchestrator.max_sandboxes,
        memory_mib=orchestrator.max_memory_mib or int(memory * _MEMORY_SHARE),
        waiting_starts=orchestrator.max_waiting_starts,
        retry_after_seconds=orchestrator.retry_after_seconds,
    )
