import uuid
from pathlib import Path

import pytest

from agentenv.base import process
from agentenv.base.units import MIB
from agentenv.images import disk
from agentenv.images.errors import BuildFailed

pytestmark = pytest.mark.host
IDENTITY = uuid.UUID(int=7)


def _tree(root: Path) -> Path:
    (root / "home/user").mkdir(parents=True)
    (root / "home/user/hello").write_text("hello\n")
    (root / "bin").symlink_to("usr/bin")
    return root


async def test_disk_holds_the_tree_in_a_sound_and_sparse_file(tmp_path: Path) -> None:
    target = tmp_path / "disk"
    await disk.make_ext4(_tree(tmp_path / "root"), target, size_mib=1024, identity=IDENTITY)
    await process.run(["e2fsck", "-f", "-n", target])
    content = await process.run(["debugfs", "-R", "cat /home/user/hello", target])
    assert content.stdout == b"hello\n"
    assert target.stat().st_size == 1024 * MIB
    assert target.stat().st_blocks * 512 < 24 * MIB


async def test_clones_can_write_all_of_the_space(tmp_path: Path) -> None:
    target = tmp_path / "disk"
    await disk.make_ext4(_tree(tmp_path / "root"), target, size_mib=1024, identity=IDENTITY)
    facts = (await process.run(["dumpe2fs", "-h", target])).stdout.decode()
    assert f"Filesystem UUID:          {IDENTITY}" in facts
    assert "Reserved block count:     0" in facts
    assert "has_journal" in facts


async def test_tree_that_does_not_fit_fails_with_the_reason(tmp_path: Path) -> None:
    root = _tree(tmp_path / "root")
    (root / "large").write_bytes(bytes(range(256)) * (20 * MIB // 256))
    with pytest.raises(BuildFailed, match="mke2fs"):
        await disk.make_ext4(root, tmp_path / "disk", size_mib=16, identity=IDENTITY)
