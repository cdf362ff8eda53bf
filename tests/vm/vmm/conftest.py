"""The laboratory: machines of one test, all gone when it has ended."""

import os
import shutil
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from agentenv.base import aio, process
from agentenv.vmm.base import TapAttachment
from agentenv.vmm.qemu import library
from agentenv.vmm.qemu.processes import find_orphans
from support import initramfs as archive
from support.laboratory import Laboratory

_numbers = count(1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def small_initramfs(kernel: Path, shared_directory: Path) -> Path:
    """An initramfs whose first process obeys `aenv_test=` on the kernel command line."""
    program = shared_directory / "test_init"
    await archive.compile_test_init(program)
    packed = shared_directory / "small-initramfs"
    packed.write_bytes(archive.pack(program, archive.read_balloon_modules(kernel)))
    return packed


@pytest.fixture
async def laboratory(kernel: Path, small_initramfs: Path, shared_directory: Path) -> AsyncIterator[Laboratory]:
    """A place for machines that takes away what a test left."""
    machines = shared_directory / f"m{os.getpid()}-{next(_numbers)}"
    supervisor = aio.Supervisor()
    yield Laboratory(supervisor, machines, kernel, small_initramfs)
    await supervisor.stop()
    for orphan in find_orphans(machines):
        orphan.kill()
        await orphan.wait_ended()
        process.reap(orphan.pid)


@pytest.fixture
async def namespace() -> AsyncIterator[str]:
    """A network namespace of the test's own."""
    name = f"aenv-test-{os.getpid()}"
    await process.run(("ip", "netns", "add", name))
    yield name
    await process.run(("ip", "netns", "delete", name))


@pytest.fixture
async def tap(namespace: str) -> TapAttachment:
    """A tap device in that namespace, as the network package makes them."""
    await process.run(("ip", "-n", namespace, "tuntap", "add", "dev", "tap0", "mode", "tap", "vnet_hdr"))
    await process.run(("ip", "-n", namespace, "link", "set", "tap0", "up"))
    return TapAttachment(namespace, "tap0", "02:fc:00:00:00:05")


@pytest.fixture(scope="session")
def preload(shared_directory: Path) -> Path:
    """The preload library where monitors can read it."""
    copy = shared_directory / "preload.so"
    shutil.copy(library.BUILT, copy)
    copy.chmod(0o755)
    return copy


@pytest.fixture
def room(shared_directory: Path) -> Path:
    """An empty directory through which monitors can get."""
    path = shared_directory / f"room{next(_numbers)}"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
async def small_disk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A file system that holds no machine's memory."""
    path = tmp_path_factory.mktemp("small")
    await process.run(("mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", path))
    yield path
    await process.run(("umount", path))
