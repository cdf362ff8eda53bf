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
from agentenv.images import debian, disk, manifest
from agentenv.images.base import Image
from agentenv.images.debian import Recipe
from agentenv.images.errors import ImageDamaged
from agentenv.images.manifest import ImageManifest
from agentenv.images.settings import ImagesSettings

BASE_NAME = "base"
_ALPHABET = string.ascii_lowercase + string.digits


def find_base(images: Path) -> tuple[Path, ImageManifest] | None:
    """Return the directory and manifest of the image called `base`; a damaged one counts as absent."""
    for directory in sorted(images.glob("*/")):
        try:
            found = manifest.read(directory)
            manifest.to_image(directory, found)
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


async def build_base(images: Path, work: Path, recipe: Recipe, settings: ImagesSettings, pool: BlockingPool) -> Image:
    """Build the base image from `recipe` and make it the one called `base`. `work` is on the same file system.

    A rebuilt image keeps its id. The disk that it replaces stays until no sandbox stands on it.
    """
    found = find_base(images)
    template_id = found[1].template_id if found else _new_template_id()
    root = await debian.build_root(recipe, work, pool)
    staging = work / template_id
    staging.mkdir()
    name = f"disk-{secrets.token_hex(8)}.ext4"
    identity = uuid.uuid5(uuid.NAMESPACE_OID, template_id)
    await disk.make_ext4(root, staging / name, size_mib=settings.base_disk_mib, identity=identity)
    record = ImageManifest(
        template_id=template_id,
        names=(BASE_NAME,),
        disk_file=name,
        disk_size_bytes=settings.base_disk_mib * MIB,
        environment={"LANG": "C.UTF-8"},
        default_user=debian.USER,
        default_workdir=None,
        built_from=f"{recipe.suite}: {', '.join(sorted(recipe.packages))}",
        inputs=base_inputs(recipe.suite, settings),
        **_defaults(settings),
    )
    directory = _publish(images, staging, record)
    return manifest.to_image(directory, record)


def _publish(images: Path, staging: Path, record: ImageManifest) -> Path:
    directory = images / record.template_id
    images.mkdir(parents=True, exist_ok=True)
    if directory.exists():
        (staging / record.disk_file).rename(directory / record.disk_file)
        manifest.write(directory, record)
    else:
        manifest.write(staging, record)
        staging.rename(directory)
    files.sync_directory(images)
    return directory


def _defaults(settings: ImagesSettings) -> dict[str, int]:
    return {"vcpus": settings.default_vcpus, "memory_mib": settings.default_memory_mib}


def _new_template_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(20))
