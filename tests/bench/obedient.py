"""Machines for benches of captures: a guest that changes as much memory as it is told, and beats every millisecond."""

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from agentenv.base.aio import Supervisor
from agentenv.base.units import MIB
from agentenv.vmm.base import Machine, MachineSpec
from agentenv.vmm.qemu import library
from agentenv.vmm.qemu.binary import find_qemu
from agentenv.vmm.qemu.driver import QemuDriver
from bench.node import BenchServer
from support import initramfs
from support.laboratory import Laboratory, wait_for_console
from support.panel import Panel

MEMORY_MIB = 1024


@dataclass(frozen=True, slots=True)
class Obedient:
    """Where such machines live. `driver` makes live captures, `plain` does not."""

    laboratory: Laboratory
    directory: Path
    driver: QemuDriver
    plain: QemuDriver

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, server: BenchServer) -> AsyncIterator["Obedient"]:
        """Prepare kernel, initramfs and drivers; everything is gone afterwards."""
        directory = Path(tempfile.mkdtemp(prefix="aenv-bench-", dir=server.home.path))
        directory.chmod(0o711)
        supervisor = Supervisor()
        try:
            await initramfs.compile_test_init(directory / "init")
            packed = directory / "initramfs"
            packed.write_bytes(initramfs.pack(directory / "init"))
            kernel = next((server.home.path / "kernels").glob("*/vmlinux"))
            laboratory = Laboratory(supervisor, directory / "machines", kernel, packed)
            preload = await library.provide(directory, await find_qemu(server.settings.vmm.qemu_binary))
            assert preload is not None, "scripts/build-core builds the preload library"
            yield cls(laboratory, directory, await laboratory.driver(preload=preload), await laboratory.driver())
        finally:
            await supervisor.stop()
            shutil.rmtree(directory)

    @property
    def conditions(self) -> str:
        """What runs these guests."""
        return f"{self.driver.accelerator}, 1 vCPU, {MEMORY_MIB} MiB"

    def describe(self) -> MachineSpec:
        """Return such a machine."""
        return replace(self.laboratory.describe("obey"), memory_mib=MEMORY_MIB)

    @contextlib.asynccontextmanager
    async def booted(self, driver: QemuDriver) -> AsyncIterator[tuple[Machine, Panel]]:
        """Boot one, and end it."""
        machine = await driver.boot(self.describe())
        try:
            await wait_for_console(machine, "obeying")
            yield machine, await Panel.find(machine, MEMORY_MIB * MIB)
        finally:
            await machine.kill()
