"""The record of a machine outlives the server; a damaged one is none."""

from pathlib import Path

import pytest

from agentenv.vmm.base import Accelerator, MachineFacts
from agentenv.vmm.qemu.lineage import LINEAGE_FILE, Lineage, LineageFile

FACTS = MachineFacts("qemu", "7.2.22", Accelerator.TCG, "x86_64", "max@1kHz", "sha256:0")
NEW = Lineage(FACTS, 2**27, is_restored=True, is_preloaded=True)


def test_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    record = LineageFile.create(tmp_path, NEW)
    record.lose_track()
    record.advance("A", is_tracked=True)

    read = LineageFile.open(tmp_path)

    assert read is not None
    assert read.lineage == record.lineage
    assert (read.lineage.newest_layer, read.lineage.is_tracked) == ("A", True)
    assert [entry.name for entry in tmp_path.iterdir()] == [LINEAGE_FILE]


def test_track_is_lost_before_the_next_capture_is_finished(tmp_path: Path) -> None:
    record = LineageFile.create(tmp_path, NEW)
    record.advance("A", is_tracked=True)

    record.lose_track()

    read = LineageFile.open(tmp_path)
    assert read is not None
    assert (read.lineage.newest_layer, read.lineage.is_tracked) == ("A", False)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"facts": 1}', b"\xff" * 100])
def test_damaged_record_is_none(tmp_path: Path, content: bytes) -> None:
    LineageFile.create(tmp_path, NEW)
    (tmp_path / LINEAGE_FILE).write_bytes(content)

    assert LineageFile.open(tmp_path) is None


def test_missing_record_is_none(tmp_path: Path) -> None:
    assert LineageFile.open(tmp_path) is None
