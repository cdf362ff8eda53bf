"""The record beside each image: `images/<template id>/manifest.json`. Owns its form; reading it is total."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agentenv.base import files
from agentenv.base.ids import TemplateId
from agentenv.images.base import Image
from agentenv.images.errors import ImageDamaged

TEMPLATE_ID = re.compile(r"[a-z0-9]{20}")
FILE_NAME = "manifest.json"
_LIMIT_BYTES = 256 * 1024

_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,127}$")]


class ImageManifest(BaseModel):
    """What is known of an image. `disk_file` lies beside the manifest; `inputs` tells whether it is still current."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    template_id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{20}$")]
    names: tuple[_Name, ...] = Field(max_length=64)
    disk_file: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,99}$")]
    disk_size_bytes: int = Field(gt=0)
    vcpus: int = Field(ge=1)
    memory_mib: int = Field(ge=1)
    environment: dict[str, str]
    default_user: str = Field(min_length=1)
    default_workdir: str | None
    built_from: str
    inputs: str


def read(directory: Path) -> ImageManifest:
    """Return the manifest in an image's directory. Raises `ImageDamaged`."""
    path = directory / FILE_NAME
    try:
        with path.open("rb") as file:
            manifest = ImageManifest.model_validate_json(file.read(_LIMIT_BYTES))
    except (OSError, ValidationError) as error:
        raise ImageDamaged(f"{path} cannot be read; run `aenv setup`") from error
    if manifest.template_id != directory.name:
        raise ImageDamaged(f"{path} belongs to another image, {manifest.template_id}")
    return manifest


def write(directory: Path, manifest: ImageManifest) -> None:
    """Make `manifest` the image's; from here on it can be found."""
    files.write_atomically(directory / FILE_NAME, manifest.model_dump_json(indent=2).encode() + b"\n")


def to_image(directory: Path, manifest: ImageManifest) -> Image:
    """Return what can be launched. Raises `ImageDamaged` when the disk is not there in its full size."""
    disk = directory / manifest.disk_file
    try:
        size = disk.stat().st_size
    except OSError as error:
        raise ImageDamaged(f"the disk {disk} is missing; run `aenv setup`") from error
    if size != manifest.disk_size_bytes:
        raise ImageDamaged(f"the disk {disk} has {size} bytes, not {manifest.disk_size_bytes}; run `aenv setup`")
    return Image(
        template_id=TemplateId(manifest.template_id),
        names=manifest.names,
        disk=disk,
        disk_size_bytes=size,
        vcpus=manifest.vcpus,
        memory_mib=manifest.memory_mib,
        environment=manifest.environment,
        default_user=manifest.default_user,
        default_workdir=manifest.default_workdir,
    )
