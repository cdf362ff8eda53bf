import errno
import os
from pathlib import Path

import pytest

from agentenv.blocks import handover


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    path = tmp_path / "own.layer"
    path.write_bytes(b"layer" * 1000)
    return path


def test_same_file_system_costs_no_copy(layer: Path, tmp_path: Path) -> None:
    handover.give(layer, tmp_path / "incoming")
    assert (tmp_path / "incoming").samefile(layer)


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_another_file_system_gets_a_whole_copy(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(reason, "no")

    monkeypatch.setattr(os, "link", refuse)
    handover.give(layer, tmp_path / "incoming")
    assert (tmp_path / "incoming").read_bytes() == layer.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["incoming", "own.layer"]


def test_copy_that_fails_leaves_nothing(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "no")

    def fill_up(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "sendfile", fill_up)
    with pytest.raises(OSError, match="full"):
        handover.give(layer, tmp_path / "incoming")
    assert [path.name for path in tmp_path.iterdir()] == ["own.layer"]


def test_what_was_given_before_is_kept(layer: Path, tmp_path: Path) -> None:
    handover.give(layer, tmp_path / "incoming")
    handover.give(layer, tmp_path / "incoming")
    assert (tmp_path / "incoming").samefile(layer)
