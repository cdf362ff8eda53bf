"""The state of a real machine is taken while it runs, and other machines go on from it, page for page."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

import agentenv_core as core
from agentenv.base.clock import SystemClock
from agentenv.vmm.base import Capability, Machine, RestoreSource
from agentenv.vmm.errors import BootFailed, CaptureFailed, MachineRefused, SnapshotUnfit
from agentenv.vmm.qemu.driver import QemuDriver
from agentenv.vmm.qemu.processes import read_owner
from support.captures import History, go_on, make_image, nothing, read_turns, wait_for_turns
from support.laboratory import UID, Laboratory, wait_for_console

pytestmark = pytest.mark.vm

MEMORY_BYTES = 128 * 2**20
# What the guest changes between two captures here, and what its kernel does: far below what it has in all.
CHANGED_BYTES = 16 * 2**20


@pytest.fixture(params=["live", "plain"])
async def driver(request: pytest.FixtureRequest, laboratory: Laboratory, preload: Path) -> QemuDriver:
    """Drivers with and without the preload library."""
    return await laboratory.driver(preload=preload if request.param == "live" else None)


@pytest.fixture
async def live_driver(laboratory: Laboratory, preload: Path) -> QemuDriver:
    return await laboratory.driver(preload=preload)


@pytest.fixture
async def history(laboratory: Laboratory, driver: QemuDriver, room: Path) -> History:
    """A machine whose guest keeps an eye on its memory."""
    machine = await driver.boot(laboratory.describe("memory"))
    await wait_for_turns(machine)
    return History(machine, room)


async def test_clones_go_on_from_where_the_original_was(
    laboratory: Laboratory, history: History, live_driver: QemuDriver, room: Path
) -> None:
    captured = await history.capture()
    last = (await wait_for_turns(history.machine))[-1]
    image = make_image(history.layers, room / "image")
    spec = laboratory.describe("memory")

    first = await go_on(live_driver, spec, history, image, laboratory, uid=UID + 1)
    second = await go_on(live_driver, spec, history, image, laboratory, uid=UID + 2)

    for clone in (first, second):
        assert (await wait_for_turns(clone))[0] <= last, "the original had gone on meanwhile"
    assert (await wait_for_turns(history.machine))[-1] > last
    assert captured.digest.startswith("sha256:")
    assert captured.size_bytes == history.layers[0].stat().st_size
    assert captured.data_bytes < MEMORY_BYTES // 2, "pages of zeros take no space"


async def test_every_generation_holds_what_changed_and_all_of_them_everything(
    laboratory: Laboratory, history: History, live_driver: QemuDriver, room: Path
) -> None:
    sizes = [await history.capture()]
    for _ in range(4):
        await wait_for_turns(history.machine, 3)
        sizes.append(await history.capture())

    image = make_image(history.layers, room / "image")
    clone = await go_on(live_driver, laboratory.describe("memory"), history, image, laboratory, uid=UID + 1)
    await wait_for_turns(clone)
    assert sizes[0].data_bytes > 24 * 2**20
    assert max(size.data_bytes for size in sizes[1:]) < CHANGED_BYTES


async def test_generations_of_a_restored_machine_stand_on_its_image(
    laboratory: Laboratory, history: History, live_driver: QemuDriver, room: Path
) -> None:
    await history.capture()
    spec = laboratory.describe("memory")
    for generation in range(3):
        image = make_image(history.layers, room / f"image{generation}")
        clone = await go_on(live_driver, spec, history, image, laboratory, uid=UID + 1 + generation)
        await wait_for_turns(clone, 3)
        await history.machine.kill()
        history = replace(history, machine=clone)
        for _ in range(2):
            captured = await history.capture()
            assert 0 < captured.data_bytes < CHANGED_BYTES
            await wait_for_turns(clone, 2)

    image = make_image(history.layers, room / "last")
    clone = await go_on(live_driver, spec, history, image, laboratory, uid=UID + 9)
    await wait_for_turns(clone)


async def test_what_runs_while_it_is_stopped_sees_nothing_change(history: History) -> None:
    clock = SystemClock()
    seen: list[list[int]] = []

    async def look() -> None:
        await clock.sleep(0.1)  # what is under way on the line arrives
        seen.append(read_turns(history.machine))
        await clock.sleep(0.2)
        seen.append(read_turns(history.machine))

    capture = await history.machine.capture(history.target(), while_stopped=look)
    await capture.abandon()

    assert seen[0] == seen[1]
    await wait_for_turns(history.machine)


async def test_stopped_machine_stays_so_until_it_is_resumed(history: History) -> None:
    clock = SystemClock()
    capture = await history.machine.capture(history.target(), while_stopped=nothing, stay_stopped=True)
    await capture.finish()
    await clock.sleep(0.1)
    turns = read_turns(history.machine)
    await clock.sleep(0.3)

    assert read_turns(history.machine) == turns
    await history.machine.resume()
    await wait_for_turns(history.machine)


async def test_error_while_stopped_is_handed_on_and_the_machine_runs_on(history: History) -> None:
    async def fail() -> None:
        raise LookupError("the disk cannot be frozen")

    with pytest.raises(LookupError):
        await history.machine.capture(history.target(), while_stopped=fail, stay_stopped=True)

    assert list(history.directory.iterdir()) == []
    await wait_for_turns(history.machine)
    assert (await history.capture()).data_bytes > 24 * 2**20


async def test_cancelled_capture_leaves_a_running_machine_and_no_file(history: History) -> None:
    stopped = asyncio.Event()

    async def wait() -> None:
        stopped.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(history.machine.capture(history.target(), while_stopped=wait))
        await stopped.wait()
        task.cancel()

    assert list(history.directory.iterdir()) == []
    await wait_for_turns(history.machine)


async def test_abandoned_capture_costs_the_next_one_no_change(
    laboratory: Laboratory, history: History, live_driver: QemuDriver, room: Path
) -> None:
    await history.capture()
    await wait_for_turns(history.machine)
    capture = await history.machine.capture(history.target(), while_stopped=nothing)
    await capture.abandon()
    await capture.abandon()
    assert len(list(room.iterdir())) == 2
    await wait_for_turns(history.machine)

    captured = await history.capture()

    assert captured.data_bytes < CHANGED_BYTES
    image = make_image(history.layers, room / "image")
    clone = await go_on(live_driver, laboratory.describe("memory"), history, image, laboratory, uid=UID + 1)
    await wait_for_turns(clone)


async def test_one_capture_at_a_time(history: History) -> None:
    capture = await history.machine.capture(history.target(), while_stopped=nothing)
    with pytest.raises(CaptureFailed, match="not finished"):
        await history.machine.capture(history.target(history.directory / "other"), while_stopped=nothing)
    await capture.finish()

    with pytest.raises(CaptureFailed, match="there already"):
        await history.machine.capture(history.target(), while_stopped=nothing)
    assert len(list(history.directory.iterdir())) == 2, "files of another capture are left alone"
    history.layers.append(history.target().memory_layer)
    await history.capture()


async def test_full_disk_fails_the_capture_and_not_the_machine(history: History, small_disk: Path) -> None:
    with pytest.raises(CaptureFailed, match="No space left"):
        await (await history.machine.capture(history.target(small_disk), while_stopped=nothing)).finish()

    assert list(small_disk.iterdir()) == []
    await wait_for_turns(history.machine)
    assert (await history.capture()).data_bytes > 24 * 2**20


async def test_monitor_that_is_killed_fails_its_capture(history: History) -> None:
    async def kill() -> None:
        await history.machine.kill()

    with pytest.raises(CaptureFailed):
        await history.machine.capture(history.target(), while_stopped=kill)

    assert list(history.directory.iterdir()) == []


async def test_killed_copy_fails_the_capture_and_not_the_machine(
    laboratory: Laboratory, live_driver: QemuDriver, room: Path
) -> None:
    history = History(await live_driver.boot(laboratory.describe("memory")), room)
    await wait_for_turns(history.machine)
    capture = await history.machine.capture(history.target(), while_stopped=nothing)
    (copy,) = _processes_of(UID) - {history.machine.handle.process.pid}
    os.kill(copy, 9)

    with pytest.raises(CaptureFailed):
        await capture.finish()

    assert list(room.iterdir()) == []
    assert _processes_of(UID) == {history.machine.handle.process.pid}
    await wait_for_turns(history.machine)
    assert (await history.capture()).data_bytes > 24 * 2**20


async def test_live_capture_is_short_and_leaves_no_process(
    laboratory: Laboratory, live_driver: QemuDriver, room: Path
) -> None:
    assert Capability.LIVE_CAPTURE in live_driver.capabilities
    history = History(await live_driver.boot(laboratory.describe("memory")), room)
    await wait_for_turns(history.machine)

    captures = [await history.capture() for _ in range(5)]

    # The median, because the machine of the test is shared; by far less than it takes to copy the memory.
    assert sorted(capture.frozen_ms for capture in captures)[2] < 40
    assert _processes_of(UID) == {history.machine.handle.process.pid}
    await history.machine.kill()
    assert _processes_of(UID) == set()


async def test_next_server_goes_on_with_the_captures_of_the_last(
    laboratory: Laboratory, driver: QemuDriver, live_driver: QemuDriver, history: History, room: Path
) -> None:
    await history.capture()
    await history.machine.detach()
    machine = await driver.adopt(history.machine.handle)
    assert machine is not None
    await wait_for_turns(machine)

    history = replace(history, machine=machine)
    captured = await history.capture()

    assert captured.data_bytes < CHANGED_BYTES
    image = make_image(history.layers, room / "image")
    clone = await go_on(live_driver, laboratory.describe("memory"), history, image, laboratory, uid=UID + 1)
    await wait_for_turns(clone)


async def test_state_that_does_not_fit_is_refused_before_anything_starts(
    laboratory: Laboratory, history: History, live_driver: QemuDriver, room: Path
) -> None:
    await history.capture()
    image = make_image(history.layers, room / "image")
    larger = replace(laboratory.describe("memory"), memory_mib=256)
    spec = laboratory.describe("memory")

    with pytest.raises(SnapshotUnfit):
        await live_driver.restore(larger, _source(live_driver, laboratory, history, image))
    os.truncate(image, MEMORY_BYTES - 4096)
    with pytest.raises(MachineRefused, match="does not fit"):
        await live_driver.restore(spec, _source(live_driver, laboratory, history, image))

    assert not larger.directory.exists()
    assert not spec.directory.exists()


async def test_damaged_device_state_leaves_nothing_behind(
    laboratory: Laboratory, history: History, live_driver: QemuDriver, room: Path
) -> None:
    await history.capture()
    image = make_image(history.layers, room / "image")
    source = _source(live_driver, laboratory, history, image)
    content = bytearray(source.device_state.read_bytes())
    content[len(content) // 3 :] = b"\xff" * (len(content) - len(content) // 3)
    source.device_state.write_bytes(content)
    spec = replace(laboratory.describe("memory"), uid=UID + 1)

    with pytest.raises(BootFailed, match="could not go on"):
        await live_driver.restore(spec, source)

    assert _processes_of(UID + 1) == set()


async def test_without_the_library_an_image_that_could_be_damaged_is_refused(
    laboratory: Laboratory, history: History, room: Path
) -> None:
    await history.capture()
    image = make_image(history.layers, room / "image")
    plain = await laboratory.driver()

    with pytest.raises(MachineRefused, match="could damage the memory image"):
        await plain.restore(laboratory.describe("memory"), _source(plain, laboratory, history, image))


async def test_memory_that_a_clone_frees_is_given_back_and_the_image_stays_whole(
    laboratory: Laboratory, live_driver: QemuDriver, room: Path
) -> None:
    # A kernel reports nothing while less than 64 MiB are free.
    spec = replace(laboratory.describe("free"), memory_mib=512)
    history = History(await live_driver.boot(spec), room)
    await wait_for_console(history.machine, "filled 1")
    await history.capture()
    await history.machine.kill()
    image = make_image(history.layers, room / "image")
    digest = core.digest(image)

    clone = await go_on(live_driver, spec, history, image, laboratory, uid=UID + 1)
    await wait_for_console(clone, "filled 2")
    filled = _own_bytes(clone)
    await wait_for_console(clone, "freed 2")

    assert filled - _own_bytes(clone) > 64 * 2**20
    assert core.digest(image) == digest


def _own_bytes(machine: Machine) -> int:
    rollup = Path(f"/proc/{machine.handle.process.pid}/smaps_rollup").read_text()
    (kilobytes,) = (line.split()[1] for line in rollup.splitlines() if line.startswith("Anonymous:"))
    return int(kilobytes) * 1024


def _source(driver: QemuDriver, laboratory: Laboratory, history: History, image: Path) -> RestoreSource:
    return RestoreSource(history.device_state, image, driver.facts_for(laboratory.describe("memory")))


def _processes_of(uid: int) -> set[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return {number for number in numbers if read_owner(number) == uid}
