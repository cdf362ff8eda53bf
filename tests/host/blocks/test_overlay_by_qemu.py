"""QEMU's own tools accept the disks that we write."""

import json
import os
from pathlib import Path

import pytest

from agentenv.base import process
from agentenv.base.ids import new_sandbox_id
from agentenv.blocks.overlay import OverlayStore

pytestmark = pytest.mark.host


@pytest.mark.parametrize("size_bytes", [512, 3 * 2**30 + 512, 2**42])
async def test_checker_finds_a_whole_disk_over_its_base(tmp_path: Path, size_bytes: int) -> None:
    base = tmp_path / "base, with a comma.ext4"
    base.touch()
    os.truncate(base, size_bytes)
    disk = await OverlayStore(tmp_path / "disks").create(new_sandbox_id(), base, owner=0)

    await process.run(("qemu-img", "check", disk.path))
    found = json.loads((await process.run(("qemu-img", "info", "--output=json", disk.path))).stdout)

    assert found["virtual-size"] == size_bytes
    assert found["full-backing-filename"] == str(base)
    assert found["backing-filename-format"] == "raw"


async def test_writes_stay_in_the_disk_and_reads_fall_through(tmp_path: Path) -> None:
    base = tmp_path / "base.ext4"
    base.write_bytes(b"\x11" * 2**20)
    disk = await OverlayStore(tmp_path / "disks").create(new_sandbox_id(), base, owner=0)

    await process.run(("qemu-io", "-c", "write -P 0x22 4096 4096", "-f", "qcow2", disk.path))
    checks = ("read -P 0x11 0 4096", "read -P 0x22 4096 4096", "read -P 0x11 8192 512000")
    for check in checks:
        answer = await process.run(("qemu-io", "-c", check, "-f", "qcow2", disk.path))
        assert b"failed" not in answer.stdout
    await process.run(("qemu-img", "check", disk.path))
    assert base.read_bytes() == b"\x11" * 2**20
