"""Makes the default base image and publishes it in the catalogue's directory, whole or not at all."""

import hashlib
import json
import secrets
import string
import uuid
from pathlib import Path

from agentenv.base import files
from agentenv.base.aio import BlockingPool
from agentenv.base.units import MIB
from agentenv.blocks.layers import LayerFiles
from agentenv.images import debian, disk, earlier, launchable, manifest, shelf
from agentenv.images.base import Image
from agentenv.images.debian import Recipe
from agentenv.images.errors import ImageDamaged
from agentenv.images.manifest import ImageManifest
from agentenv.images.settings import ImagesSettings

BASE_NAME = "base"
_IMAGES = "images"
_ALPHABET = string.ascii_lowercase + string.digits


def find_base(home: Path) -> tuple[Path, ImageManifest] | None:
    """Return the directory and manifest of the image called `base`; a damaged one counts as absent."""
    for directory in sorted((home / _IMAGES).glob("*/")):
        try:
            found = manifest.read(directory)
            launchable.to_image(home, found)
        except ImageDamaged:
            continue
        if BASE_NAME in found.names:
            return directory, found
    return None


def base_inputs(suite: str, settings: ImagesSettings) -> str:
    """Return a digest of everything that decides what is on the base disk, apart from the age of its packages."""
    facts = [debian.RECIPE_VERSION, suite, sorted(settings.base_packages), settings.base_disk_mib]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def has_defaults(found: ImageManifest, settings: ImagesSettings) -> bool:
    """Return whether an image's manifest carries the settings' defaults."""
    return found.model_copy(update=_defaults(settings)) == found


def update_defaults(directory: Path, found: ImageManifest, settings: ImagesSettings) -> None:
    """Write the settings' defaults into an image's manifest."""
    manifest.write(directory, found.model_copy(update=_defaults(settings)))


def can_be_converted(home: Path, suite: str, settings: ImagesSettings) -> bool:
    """Return whether there is an image called `base` from this recipe that only has the form before layers."""
    found = earlier.find(home / _IMAGES, BASE_NAME)
    return found is not None and found[1].inputs == base_inputs(suite, settings)


async def convert_base(home: Path, work: Path, settings: ImagesSettings, layer_files: LayerFiles) -> Image:
    """Make a layer of the disk of an image from before there were layers. It keeps its id."""
    found = earlier.find(home / _IMAGES, BASE_NAME)
    assert found is not None, "asked for only when there is one"
    directory, record = found
    layer = await shelf.store(home, directory / record.disk_file, work, layer_files)
    converted = record.with_layer(layer).model_copy(update=_defaults(settings))
    manifest.write(directory, converted)
    return launchable.to_image(home, converted)


async def build_base(
    home: Path, work: Path, recipe: Recipe, settings: ImagesSettings, *, pool: BlockingPool, layer_files: LayerFiles
) -> Image:
    """Build the base image from `recipe` and make it the one called `base`. `work` is on the file system of `home`.

    A rebuilt image keeps its id. The layer that it replaces stays, for sandboxes and snapshots may stand on it.
    """
    found = find_base(home)
    template_id = found[1].template_id if found else _new_template_id()
    root = await debian.build_root(recipe, work, pool)
    raw = work / "disk.ext4"
    identity = uuid.uuid5(uuid.NAMESPACE_OID, template_id)
    await disk.make_ext4(root, raw, size_mib=settings.base_disk_mib, identity=identity)
    record = ImageManifest(
        template_id=template_id,
        names=(BASE_NAME,),
        layers=(await shelf.store(home, raw, work, layer_files),),
        disk_size_bytes=settings.base_disk_mib * MIB,
        environment={"LANG": "C.UTF-8"},
        default_user=debian.USER,
        default_workdir=None,
        built_from=f"{recipe.suite}: {', '.join(sorted(recipe.packages))}",
        inputs=base_inputs(recipe.suite, settings),
        **_defaults(settings),
    )
    manifest.write(home / _IMAGES / template_id, record)
    files.sync_directory(home / _IMAGES)
    return launchable.to_image(home, record)


def _defaults(settings: ImagesSettings) -> dict[str, int]:
    return {"vcpus": settings.default_vcpus, "memory_mib": settings.default_memory_mib}


def _new_template_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(20))
