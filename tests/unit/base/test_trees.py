"""Trees of any shape are removed, and nothing that they lead to."""

import os
from pathlib import Path

import pytest

from agentenv.base import trees


def test_a_tree_goes_with_all_that_is_in_it_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tree" / "full" / "er").mkdir(parents=True)
    (tmp_path / "tree" / "full" / "file").write_text("x")
    (tmp_path / "tree" / "file").write_text("x")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "kept").touch()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "beside")
    os.mkfifo(tmp_path / "tree" / "pipe")

    trees.remove(tmp_path / "tree")
    trees.remove(tmp_path / "tree")

    assert [path.name for path in tmp_path.rglob("*")] == ["beside", "kept"]


def test_a_link_to_a_tree_goes_and_the_tree_stays(tmp_path: Path) -> None:
    (tmp_path / "tree" / "inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "tree")

    trees.remove(tmp_path / "link")

    assert [path.name for path in tmp_path.rglob("*")] == ["tree", "inside"]


def test_a_tree_deeper_than_stack_and_open_files_allow_is_removed(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    here = os.open(tmp_path / "tree", os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)

    trees.remove(tmp_path / "tree")

    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "busy").touch()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("agentenv.base.trees.os.unlink", refuse)
    with pytest.raises(OSError, match="busy"):
        trees.remove(tmp_path / "tree")
