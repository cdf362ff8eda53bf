"""The disk of the prepared base image as a raw file, for those who use it without the block daemon."""

from pathlib import Path

import agentenv_core
from agentenv.blocks.base import FileLayer
from agentenv.images import builder, launchable


def write_base_disk(home: Path, target: Path) -> None:
    """Write the disk of the image `base` that was prepared below `home` to the new file `target`, with holes."""
    found = builder.find_base(home)
    assert found is not None, f"no image 'base' below {home}: run `make setup`"
    image = launchable.to_image(home, found[1])
    agentenv_core.cat([layer.path for layer in image.disk.layers if isinstance(layer, FileLayer)], target)
