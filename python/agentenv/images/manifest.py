"""The record beside each image: `images/<template id>/manifest.json`. Owns its form; reading it is total."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agentenv.base import files
from agentenv.blocks.base import ObjectLayer, RegistryLayer
from agentenv.images.errors import ImageDamaged

TEMPLATE_ID = re.compile(r"[a-z0-9]{20}")
FILE_NAME = "manifest.json"
LIMIT_BYTES = 256 * 1024

_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,127}$")]


class StoredLayer(BaseModel):
    """A layer on this host's shelf; `digest` is `sha256:<hex>` of its file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
    size_bytes: int = Field(gt=0)
    kind: Literal["stored"] = "stored"


ImageLayer = Annotated[StoredLayer | RegistryLayer | ObjectLayer, Field(discriminator="kind")]


class ImageManifest(BaseModel):
    """What is known of an image: its layers, bottom first, and more. `inputs` tells whether it is still current."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    template_id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{20}$")]
    names: tuple[_Name, ...] = Field(max_length=64)
    layers: tuple[ImageLayer, ...] = Field(min_length=1, max_length=200)
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
            manifest = ImageManifest.model_validate_json(file.read(LIMIT_BYTES))
    except (OSError, ValidationError) as error:
        raise ImageDamaged(f"{path} cannot be read; run `aenv setup`") from error
    if manifest.template_id != directory.name:
        raise ImageDamaged(f"{path} belongs to another image, {manifest.template_id}")
    return manifest


def write(directory: Path, manifest: ImageManifest) -> None:
    """Make `manifest` the image's; from here on it can be found."""
    files.write_atomically(directory / FILE_NAME, manifest.model_dump_json(indent=2).encode() + b"\n")
