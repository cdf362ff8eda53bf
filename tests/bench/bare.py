"""The floor of a cold boot: QEMU with the words that our driver uses, started by hand, and nothing around it."""

import asyncio
import contextlib
import itertools
import os
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agentenv.base import process
from agentenv.base.aio import BlockingPool, Supervisor
from agentenv.base.clock import SystemClock
from agentenv.base.ids import SandboxId
from agentenv.base.process import ProcessIdentity, reap, spawn_detached
from agentenv.guest import provision
from agentenv.guest.base import BootFiles
from agentenv.images.base import Image
from agentenv.images.catalogue import DirectoryCatalogue
from agentenv.main.home import Home
from agentenv.main.settings import Settings
from agentenv.network.base import EgressPolicy, Slot
from agentenv.network.pool import SlotPool
from agentenv.runtime.specification import guest_command_line
from agentenv.vmm.base import DiskAttachment, MachineSpec, TapAttachment
from agentenv.vmm.choice import choose_driver
from agentenv.vmm.qemu.binary import find_qemu
from agentenv.vmm.qemu.command_line import HostFacts, build
from agentenv.vmm.qemu.host import host_facts
from agentenv.vmm.qemu.tap import open_tap
from bench.envd import Envd
from support.base_disk import write_base_disk

_NETWORK = {"prefix": "aenvbare", "network": "10.209.0.0/28", "max_slots": 2, "uid_base": 380_000}


@dataclass(frozen=True, slots=True)
class BareQemu:
    """Everything that a boot needs, taken before the clock starts."""

    directory: Path
    host: HostFacts
    image: Image
    boot_files: BootFiles
    slot: Slot
    disk: Path
    numbers: "itertools.count[int]"

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, settings: Settings, home: Home) -> AsyncIterator[Self]:
        """Take a network slot of its own, and give it back."""
        network_settings = settings.network.model_validate(
            settings.network.model_dump() | _NETWORK | {"ready_slots_low": 1, "ready_slots_high": 1}
        )
        supervisor, pool, network = Supervisor(), BlockingPool("bench", 1), SlotPool(network_settings)
        directory = home.path / "bare"
        directory.mkdir()
        try:
            boot_files = provision.find_boot_files(home.path)
            driver = await choose_driver(settings.vmm, home.path, boot_files, supervisor)
            host = host_facts(await find_qemu(settings.vmm.qemu_binary), driver.accelerator, settings.vmm)
            image = await DirectoryCatalogue(home.path, pool).resolve("base")
            await network.start(frozenset())
            slot = await network.acquire(EgressPolicy())
            write_base_disk(home.path, directory / "base.raw")
            yield cls(directory, host, image, boot_files, slot, directory / "base.raw", itertools.count())
        finally:
            await network.stop()
            await supervisor.stop()
            pool.close()
            shutil.rmtree(directory)

    async def boot_seconds(self) -> float:
        """Boot a guest until its first command has answered, end it, and return the seconds."""
        name = SandboxId(f"bare{next(self.numbers)}")
        place = self.directory / name
        place.mkdir()
        disk = place / "disk.raw"
        await process.run(("cp", "--sparse=always", "--reflink=auto", self.disk, disk))
        spec = MachineSpec(
            name=name,
            directory=place,
            kernel=self.boot_files.kernel,
            initramfs=self.boot_files.initramfs,
            command_line=guest_command_line(self.slot.guest, name),
            vcpus=self.image.vcpus,
            memory_mib=self.image.memory_mib,
            disks=(DiskAttachment(disk, is_scratch=True),),
            network=TapAttachment(self.slot.namespace, self.slot.tap, self.slot.guest.mac),
            uid=os.getuid(),
        )
        (place / "monitor").mkdir()
        assert spec.network is not None
        tap = await open_tap(spec.network)
        null = os.open(os.devnull, os.O_WRONLY)
        begin = time.perf_counter()
        monitor = spawn_detached(build(self.host, spec), stderr=null, handed_over=(tap,))
        try:
            await self._wait_until_open(monitor)
            async with Envd(f"http://{self.slot.address}:49983", token=None) as envd:
                await envd.run("/bin/true")
            return time.perf_counter() - begin
        finally:
            monitor.kill()
            await monitor.wait_ended()
            reap(monitor.pid)
            disk.unlink()
            os.close(tap)
            os.close(null)

    async def _wait_until_open(self, monitor: ProcessIdentity) -> None:
        while monitor.is_alive():
            try:
                async with asyncio.timeout(0.1):
                    _, writer = await asyncio.open_connection(str(self.slot.address), 49983)
            except (OSError, TimeoutError):
                await SystemClock().sleep(0.01)
            else:
                writer.close()
                return
        raise RuntimeError("bare QEMU ended before its guest answered")
