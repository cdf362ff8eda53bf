"""Puts an image made of a directory where a test's server finds it. What is in the directory is the test's business."""

import asyncio
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.aio import BlockingPool
from agentenv.base.units import MIB
from agentenv.blocks.layers import LayerFiles
from agentenv.images import disk, manifest, shelf
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
    for name in ("images", "layers"):
        _own(home.path / name, prepared_home() / name)
    for recipe in recipes:
        asyncio.run(_make(home.path, recipe))


def add_large_base(home: Home, name: str, *, memory_mib: int) -> None:
    """Make the image `base` known in `home` by another name, with more memory. Call `add_images` first."""
    known = (manifest.read(directory.resolve()) for directory in (home.path / "images").iterdir())
    base = next(image for image in known if "base" in image.names)
    template_id = name.ljust(20, "0")
    changes = {"template_id": template_id, "names": (name,), "memory_mib": memory_mib}
    manifest.write(home.path / "images" / template_id, base.model_copy(update=changes))


def _own(directory: Path, prepared: Path) -> None:
    """Turn the link to what is prepared into a directory of links, which takes more."""
    if directory.is_symlink():
        directory.unlink()
    else:  # left by a run that was killed
        shutil.rmtree(directory)
    directory.mkdir()
    for entry in prepared.iterdir():
        (directory / entry.name).symlink_to(entry)


async def _make(home: Path, recipe: Recipe) -> None:
    template_id = recipe.name.ljust(20, "0")
    work = home / "work"
    root = work / "root"
    root.mkdir(parents=True)
    recipe.tree(root)
    image = work / "disk.ext4"
    await disk.make_ext4(root, image, size_mib=recipe.size_mib, identity=uuid.uuid4())
    pool = BlockingPool("test", 1)
    layer = await shelf.store(home, image, work, LayerFiles(pool))
    pool.close()
    shutil.rmtree(work)
    manifest.write(
        home / "images" / template_id,
        ImageManifest(
            template_id=template_id,
            names=(recipe.name,),
            layers=(layer,),
            disk_size_bytes=recipe.size_mib * MIB,
            vcpus=1,
            memory_mib=recipe.memory_mib,
            environment={},
            default_user=recipe.user,
            default_workdir=None,
            built_from="a directory of a test",
            inputs="test",
        ),
    )
