"""Disks of real layers on a real block daemon, in a home of a test's own; whatever it started is gone afterwards."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import agentenv_core
from agentenv.base import aio, mounts, process
from agentenv.base.clock import SystemClock
from agentenv.base.ids import SandboxId
from agentenv.base.process import reap
from agentenv.base.units import MIB
from agentenv.blocks.base import Disk, FileLayer, Stack
from agentenv.blocks.processes import find_daemon
from agentenv.blocks.settings import BlocksSettings
from agentenv.blocks.store import LayeredStore
from agentenv.main.disks import Disks
from agentenv.main.home import Home
from support.server import prepared_home

SIZE_BYTES = 64 * MIB
ONE, TWO = SandboxId("i0000000000000000001"), SandboxId("i0000000000000000002")


@dataclass
class DiskLab:
    """A home with one base layer. `start` is what a server does at its start."""

    home: Home
    base: Stack
    supervisor: aio.Supervisor = field(default_factory=aio.Supervisor)
    settings: BlocksSettings = field(default_factory=lambda: BlocksSettings(reserve_mib=0, request_timeout_seconds=20))

    async def start(self) -> Disks:
        disks = Disks(self.settings, self.home, self.supervisor, SystemClock())
        await disks.start()
        return disks

    async def create(self, store: LayeredStore, sandbox_id: SandboxId = ONE) -> Disk:
        return await store.create(sandbox_id, self.base, owner=os.getuid())

    async def kill_all(self) -> None:
        """Kill every process of the daemon at once."""
        await kill(*find_daemon(self.home.blocks.state).all)


async def kill(*victims: process.ProcessIdentity) -> None:
    """Kill processes and wait for their ends. They are stopped first: none may replace another meanwhile."""
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGSTOP)
    for victim in victims:
        victim.kill()
    for victim in victims:
        await victim.wait_ended()
        reap(victim.pid)


@asynccontextmanager
async def disk_lab(root: Path | None = None) -> AsyncIterator[DiskLab]:
    """Make a home with a layer whose bytes tell their places."""
    with tempfile.TemporaryDirectory(prefix="aenv-", dir=root) as directory:
        home = Home(Path(directory))
        home.make()
        home.programs.symlink_to(prepared_home() / "boot")
        raw, layer = home.path / "raw", home.path / "base.layer"
        with raw.open("wb") as file:
            for number in range(256):
                file.write(number.to_bytes(4, "big") * 1024)
            file.truncate(SIZE_BYTES)
        written = agentenv_core.commit(raw, layer)
        raw.unlink()
        lab = DiskLab(home, Stack((FileLayer(layer, written.digest),), SIZE_BYTES))
        try:
            yield lab
        finally:
            await lab.supervisor.stop()
            await lab.kill_all()
            for point in mounts.below(home.path):
                await process.run(("umount", "--lazy", point))


async def write(disk: Disk, offset: int, content: bytes) -> None:
    await asyncio.to_thread(_write, disk.path, offset, content)


async def read(disk: Disk, offset: int, length: int) -> bytes:
    return await asyncio.to_thread(_read, disk.path, offset, length)


def _write(path: Path, offset: int, content: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        assert os.pwrite(descriptor, content, offset) == len(content)
    finally:
        os.close(descriptor)


def _read(path: Path, offset: int, length: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)
