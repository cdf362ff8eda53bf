"""The block daemon dies, is found again, is replaced: what that means for disks, and that nothing of it is left."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from agentenv.base import mounts
from agentenv.base.clock import SystemClock
from agentenv.blocks import program
from agentenv.blocks.errors import DaemonGone, DaemonUnprepared
from agentenv.blocks.processes import find_daemon
from agentenv.blocks.store import LOSS
from support.real_disks import ONE, TWO, DiskLab, kill, read, write

pytestmark = pytest.mark.host


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await SystemClock().sleep(0.01)


async def test_daemon_ends_with_its_server_and_leaves_nothing(lab: DiskLab) -> None:
    disks = await lab.start()
    await disks.store.open_memory("m1", lab.base)
    await disks.stop(detach=False)
    assert find_daemon(lab.home.blocks.state).all == ()
    assert mounts.below(lab.home.path) == []


async def test_only_we_may_talk_to_it(lab: DiskLab) -> None:
    await lab.start()
    control = lab.home.blocks.control.stat()
    assert (stat.S_IMODE(control.st_mode), control.st_uid) == (0o600, os.getuid())
    assert stat.S_IMODE(lab.home.blocks.state.stat().st_mode) == 0o700


async def test_next_server_adopts_it_with_its_disks(lab: DiskLab) -> None:
    first = await lab.start()
    disk = await lab.create(first.store)
    await write(disk, 0, b"kept" * 1024)
    await first.stop(detach=True)
    before = find_daemon(lab.home.blocks.state)

    second = await lab.start()

    assert find_daemon(lab.home.blocks.state) == before
    assert await second.store.find(ONE) == disk
    assert await second.store.find(TWO) is None
    assert await read(disk, 0, 4096) == b"kept" * 1024
    assert await second.store.collect(frozenset()) == [f"disk of {ONE}"]


async def test_killed_server_process_is_a_pause(lab: DiskLab) -> None:
    disks = await lab.start()
    disk = await lab.create(disks.store)
    keep_writing = asyncio.Event()

    async def work() -> int:
        count = 0
        while not keep_writing.is_set():
            content = count.to_bytes(4, "big") * 16384
            await write(disk, (count % 512) * 65536, content)
            assert await read(disk, (count % 512) * 65536, 65536) == content
            count += 1
        return count

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        for _ in range(3):
            servers = find_daemon(lab.home.blocks.state).servers
            await kill(*servers)
            assert await disks.store.find(ONE) == disk
        keep_writing.set()

    assert working.result() > 0
    assert not disks.store._lost
    await disks.store.remove(ONE)


async def test_killed_supervisor_is_replaced_by_its_server(lab: DiskLab) -> None:
    disks = await lab.start()
    disk = await lab.create(disks.store)
    before = find_daemon(lab.home.blocks.state)
    assert before.supervisor is not None

    await kill(before.supervisor)

    await write(disk, 0, b"goes on" * 100)
    assert await read(disk, 0, 7) == b"goes on"
    assert await disks.store.find(ONE) == disk
    await _until(lambda: find_daemon(lab.home.blocks.state).supervisor not in {None, before.supervisor})
    assert find_daemon(lab.home.blocks.state).servers == before.servers
    await kill(*before.servers)
    assert await disks.store.find(ONE) == disk
    await disks.store.remove(ONE)


async def test_death_of_the_whole_daemon_is_told_and_the_next_one_serves_new_disks(lab: DiskLab) -> None:
    disks = await lab.start()
    disk = await lab.create(disks.store)
    losing = asyncio.ensure_future(disks.store.wait_lost(ONE))
    descriptor = os.open(disk.path, os.O_RDWR)

    await lab.kill_all()

    async with asyncio.timeout(20):
        assert await losing == LOSS
    with pytest.raises(OSError):
        await asyncio.to_thread(os.pread, descriptor, 4096, 0)
    os.close(descriptor)
    await disks.store.remove(ONE)
    again = await lab.create(disks.store)
    assert await read(again, 4096, 4) == b"\0\0\0\1"
    assert len(mounts.below(lab.home.path)) == 1
    await disks.store.remove(ONE)
    await disks.stop(detach=False)
    assert list(lab.home.blocks.writable.iterdir()) == []


async def test_disks_whose_daemon_died_while_no_server_ran_are_lost_and_collected(lab: DiskLab) -> None:
    first = await lab.start()
    await lab.create(first.store)
    await first.stop(detach=True)
    await lab.kill_all()
    assert mounts.below(lab.home.path) != []

    second = await lab.start()

    assert await second.store.find(ONE) is None
    assert await second.store.collect(frozenset()) == [f"disk of {ONE}"]
    await second.stop(detach=False)
    assert mounts.below(lab.home.path) == []


async def test_unused_daemon_of_another_program_is_replaced_and_a_used_one_is_not(lab: DiskLab) -> None:
    real = program.find(lab.home.programs).read_bytes()
    lab.home.programs.unlink()
    lab.home.programs.mkdir()
    earlier = program.place(lab.home.programs, "earlier")
    earlier.write_bytes(real)
    earlier.chmod(0o755)
    program.use(lab.home.programs, earlier)
    first = await lab.start()
    await lab.create(first.store)
    await first.stop(detach=True)
    before = find_daemon(lab.home.blocks.state)
    later = program.place(lab.home.programs, "later")
    later.write_bytes(real)
    later.chmod(0o755)
    program.use(lab.home.programs, later)

    second = await lab.start()
    assert find_daemon(lab.home.blocks.state) == before
    assert await second.store.find(ONE) is not None
    await second.store.remove(ONE)
    await second.stop(detach=True)
    assert program.remove_replaced(lab.home.programs, now=later.stat().st_mtime + 4000) == []

    third = await lab.start()
    assert find_daemon(lab.home.blocks.state) != before
    await third.stop(detach=True)
    assert program.remove_replaced(lab.home.programs, now=later.stat().st_mtime + 4000) == [earlier]


async def test_program_that_does_not_start_is_named_with_its_words(lab: DiskLab, tmp_path: Path) -> None:
    lab.home.programs.unlink()
    lab.home.programs.mkdir()
    with pytest.raises(DaemonUnprepared, match="run `aenv setup`"):
        await lab.start()
    broken = program.place(lab.home.programs, "broken")
    broken.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    broken.chmod(0o755)
    program.use(lab.home.programs, broken)
    with pytest.raises(DaemonGone, match="no luck"):
        await lab.start()
