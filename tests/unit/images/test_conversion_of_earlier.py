"""The base image of an earlier version becomes one with a layer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentenv_core
from agentenv.base.aio import BlockingPool
from agentenv.blocks.base import FileLayer
from agentenv.blocks.layers import LayerFiles
from agentenv.images import builder
from agentenv.images.settings import ImagesSettings

ID = "abcdefghij0123456789"
SETTINGS = ImagesSettings()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "images" / ID
    directory.mkdir(parents=True)
    disk = directory / "disk-1.ext4"
    disk.write_bytes(b"content" * 1000)
    with disk.open("r+b") as file:
        file.truncate(1024 * 1024)
    document = {
        "template_id": ID,
        "names": ["base"],
        "disk_file": disk.name,
        "disk_size_bytes": 1024 * 1024,
        "vcpus": 1,
        "memory_mib": 128,
        "environment": {"A": "1"},
        "default_user": "user",
        "default_workdir": None,
        "built_from": "test",
        "inputs": builder.base_inputs("bookworm", SETTINGS),
    }
    (directory / "manifest.json").write_text(json.dumps(document))
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.fixture
def layer_files() -> Iterator[LayerFiles]:
    pool = BlockingPool("test", 1)
    yield LayerFiles(pool)
    pool.close()


async def test_converted_image_is_the_same_one_on_a_layer(home: Path, layer_files: LayerFiles, tmp_path: Path) -> None:
    assert builder.find_base(home) is None
    assert builder.can_be_converted(home, "bookworm", SETTINGS)

    image = await builder.convert_base(home, home / "work", SETTINGS, layer_files)

    assert (image.template_id, image.environment, image.disk_size_bytes) == (ID, {"A": "1"}, 1024 * 1024)
    (layer,) = image.disk.layers
    assert isinstance(layer, FileLayer)
    assert layer.path == home / "layers" / str(layer.digest).replace(":", "-")
    agentenv_core.cat([layer.path], tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (home / "images" / ID / "disk-1.ext4").read_bytes()
    found = builder.find_base(home)
    assert found is not None
    assert builder.has_defaults(found[1], SETTINGS)
    assert list((home / "work").iterdir()) == []


def test_image_of_another_recipe_is_built_anew_instead(home: Path) -> None:
    assert not builder.can_be_converted(home, "trixie", SETTINGS)
