"""Puts an image made of a directory where a test's server finds it. What is in the directory is the test's business."""

import asyncio
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from agentenv.images import disk, manifest
from agentenv.images.manifest import ImageManifest
from agentenv.main.home import Home
from support.root_trees import Tree
from support.server import prepared_home


@dataclass(frozen=True)
class Recipe:
    """An image: its name, what fills its root, and the size of its disk and machine."""

    name: str
    tree: Tree
    user: str = "root"
    size_mib: int = 64
    memory_mib: int = 128


def add_images(home: Home, *recipes: Recipe) -> None:
    """Make the images known in `home`, beside those that are prepared."""
    images = home.path / "images"
    images.unlink()
    images.mkdir()
    for image in (prepared_home() / "images").iterdir():
        (images / image.name).symlink_to(image)
    for recipe in recipes:
        asyncio.run(_make(images, recipe))


async def _make(images: Path, recipe: Recipe) -> None:
    template_id = recipe.name.ljust(20, "0")
    directory = images / template_id
    root = directory / "root"
    root.mkdir(parents=True)
    recipe.tree(root)
    image = directory / "disk.ext4"
    await disk.make_ext4(root, image, size_mib=recipe.size_mib, identity=uuid.uuid4())
    shutil.rmtree(root)
    manifest.write(
        directory,
        ImageManifest(
            template_id=template_id,
            names=(recipe.name,),
            disk_file=image.name,
            disk_size_bytes=image.stat().st_size,
            vcpus=1,
            memory_mib=recipe.memory_mib,
            environment={},
            default_user=recipe.user,
            default_workdir=None,
            built_from="a directory of a test",
            inputs="test",
        ),
    )
