"""New files on a file system that is full: a typed error, and no file."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import agentenv_core as core
from support.layers import write_image

pytestmark = pytest.mark.host


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda place, small: core.commit(place / "raw", small / "new"),
        lambda place, small: core.commit(place / "raw", small / "new", new=core.NewLayer(compression="lz4")),
        lambda place, small: core.flatten([place / "layer"], small / "new"),
        lambda place, small: core.merge([place / "layer"], small / "new", new=core.NewLayer(archive=True)),
        lambda place, small: core.cat([place / "layer"], small / "new"),
    ],
    ids=["commit", "commit compressed", "flatten", "merge", "cat"],
)
def test_a_full_disk_is_an_error_and_leaves_no_file(
    tmp_path: Path, small: Path, make: Callable[[Path, Path], object]
) -> None:
    write_image(tmp_path / "raw", blocks=1000)
    core.commit(tmp_path / "raw", tmp_path / "layer")
    with pytest.raises(core.NoSpace, match=f"{small}/new.*: No space left on device"):
        make(tmp_path, small)
    assert list(small.iterdir()) == []
    room = os.statvfs(small)
    assert room.f_bfree == room.f_blocks
