from pathlib import Path

import pytest

from agentenv.base import mounts
from agentenv.base.mounts import Mount

TABLE = (
    "1 0 8:1 / / rw - ext4 a rw\n2 1 0:5 / /w/root/proc rw - proc p rw\n"
    "3 2 0:5 / /w/root/proc/sys\\040x rw - proc p rw\n4 1 0:6 / /work rw - tmpfs t rw\nnonsense\n"
)


def test_table_is_read_with_its_escapes() -> None:
    assert mounts.parse(TABLE)[2] == Mount(3, Path("/w/root/proc/sys x"))
    assert len(mounts.parse(TABLE)) == 4


def test_mounts_below_a_directory_come_last_mounted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "read", lambda: mounts.parse(TABLE))
    assert mounts.below(Path("/w")) == [Path("/w/root/proc/sys x"), Path("/w/root/proc")]
    assert mounts.below(Path("/nowhere"), Path("/work")) == [Path("/work")]
