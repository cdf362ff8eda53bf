"""What a monitor of ours may do, read from the kernel's own account of it."""

import os
from pathlib import Path

import pytest

from agentenv.base import process
from agentenv.vmm.base import DiskAttachment, TapAttachment
from support.laboratory import UID, Laboratory, wait_for_console

pytestmark = pytest.mark.vm


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


async def test_monitor_has_no_privilege_and_nothing_of_ours(laboratory: Laboratory) -> None:
    machine = await laboratory.start("idle")
    await wait_for_console(machine, "ready")
    pid = machine.handle.process.pid
    status = _status(pid)

    assert status["Uid"].split() == [str(UID)] * 4
    assert status["Gid"].split() == [str(UID)] * 4
    assert status["Groups"] == ""
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "500"
    assert "Max core file size        0 " in Path(f"/proc/{pid}/limits").read_text()
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert {variable.partition(b"=")[0] for variable in environment} == {b"PATH", b"LC_ALL", b""}


async def test_monitor_holds_only_descriptors_that_it_opened(laboratory: Laboratory) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    machine = await laboratory.start("idle")
    os.close(writing)

    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b"", "somebody still holds the writing end"
    links = [str(entry.readlink()) for entry in Path(f"/proc/{machine.handle.process.pid}/fd").iterdir()]
    foreign = [link for link in links if not link.startswith(("socket:", "anon_inode:", "/dev/null", "pipe:"))]
    os.close(reading)
    assert foreign == ["/dev/urandom"]


async def test_monitor_lives_in_its_namespace_with_tap_and_disk(
    laboratory: Laboratory, tap: TapAttachment, shared_directory: Path
) -> None:
    disk = shared_directory / "disk.raw"
    disk.touch()
    os.truncate(disk, 64 * 2**20)
    os.chown(disk, UID, UID)
    machine = await laboratory.start("idle", network=tap, disks=(DiskAttachment(disk, is_scratch=True),), vcpus=2)
    tail = await wait_for_console(machine, "ready")

    ours = Path(f"/proc/{machine.handle.process.pid}/ns/net").stat()
    assert ours.st_ino == (Path("/run/netns") / tap.namespace).stat().st_ino
    assert [f"device LNRO0005:0{number}" in tail for number in range(5)] == [True] * 4 + [False]
    state = await process.run(("ip", "-n", tap.namespace, "-br", "link", "show", "tap0"))
    assert b"LOWER_UP" in state.stdout, "the monitor has opened the device"
    await machine.kill()
