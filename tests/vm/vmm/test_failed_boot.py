"""A boot that fails says why in the monitor's own words and leaves nothing behind."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentenv.vmm.base import DiskAttachment, MachineSpec, TapAttachment
from agentenv.vmm.errors import BootFailed, MachineRefused
from agentenv.vmm.qemu.processes import find_orphans
from support.laboratory import Laboratory

pytestmark = pytest.mark.vm


async def _expect_failure(laboratory: Laboratory, spec: MachineSpec, reason: str) -> None:
    with pytest.raises(BootFailed, match=reason):
        await (await laboratory.driver()).boot(spec)
    assert find_orphans(laboratory.machines) == []
    assert sorted(entry.name for entry in spec.directory.rglob("*")) == ["console.log", "lineage.json", "monitor"]
    assert _zombies() == []


def _zombies() -> list[str]:
    stats = [entry.read_text() for entry in Path("/proc/self/task").glob("*/children")]
    children = [Path(f"/proc/{number}/stat") for text in stats for number in text.split()]
    return [child.read_text() for child in children if ") Z " in child.read_text()]


async def test_kernel_that_is_none(laboratory: Laboratory, shared_directory: Path) -> None:
    nonsense = shared_directory / "nonsense"
    nonsense.write_bytes(b"nothing that boots")

    await _expect_failure(laboratory, replace(laboratory.describe("idle"), kernel=nonsense), "kernel")


async def test_disk_that_the_monitor_may_not_read(laboratory: Laboratory, shared_directory: Path) -> None:
    secret = shared_directory / "secret.raw"
    secret.write_bytes(bytes(1024))
    secret.chmod(0o600)
    disk = DiskAttachment(secret)

    await _expect_failure(laboratory, replace(laboratory.describe("idle"), disks=(disk,)), "Permission denied")


async def test_namespace_that_is_not_there(laboratory: Laboratory) -> None:
    tap = TapAttachment("aenv-test-absent", "tap0", "02:fc:00:00:00:05")

    await _expect_failure(laboratory, replace(laboratory.describe("idle"), network=tap), "aenv-test-absent")


async def test_tap_that_is_not_there(laboratory: Laboratory, namespace: str) -> None:
    tap = TapAttachment(namespace, "absent", "02:fc:00:00:00:05")

    await _expect_failure(laboratory, replace(laboratory.describe("idle"), network=tap), "absent")


async def test_tap_that_another_machine_holds(laboratory: Laboratory, tap: TapAttachment) -> None:
    await laboratory.start("idle", network=tap)

    with pytest.raises(BootFailed, match="busy"):
        await laboratory.start("idle", network=tap)


async def test_monitor_that_never_answers(laboratory: Laboratory, shared_directory: Path) -> None:
    program = shared_directory / "mute"
    program.write_text('#!/bin/sh\necho "I will not talk" >&2\nexec sleep 600\n')
    program.chmod(0o755)
    driver = laboratory.driver_of(program)

    with pytest.raises(BootFailed, match=r"did not answer within 0\.5 s: I will not talk"):
        await driver.boot(laboratory.describe("idle"))
    assert _zombies() == []


async def test_monitor_that_cannot_be_executed(laboratory: Laboratory, shared_directory: Path) -> None:
    driver = laboratory.driver_of(shared_directory / "not-there")

    with pytest.raises(BootFailed, match="not-there"):
        await driver.boot(laboratory.describe("idle"))
    assert _zombies() == []


async def test_what_cannot_be_started_is_refused_before_anything_is_made(laboratory: Laboratory) -> None:
    spec = replace(laboratory.describe("idle"), uid=0)

    with pytest.raises(MachineRefused, match="user id 0"):
        await (await laboratory.driver()).boot(spec)
    assert not spec.directory.exists()
