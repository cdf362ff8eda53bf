"""Images of the form before layers, a raw disk beside the manifest: found, so that setup can convert them."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from agentenv.images.manifest import FILE_NAME, LIMIT_BYTES, TEMPLATE_ID, ImageManifest, StoredLayer

DISKS = "disk-*.ext4"


class RawDiskManifest(BaseModel):
    """What such a manifest says beyond the present form; everything else is the same."""

    model_config = ConfigDict(frozen=True, extra="allow")

    template_id: str
    names: tuple[str, ...]
    disk_file: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,99}$")]
    disk_size_bytes: int
    inputs: str

    def with_layer(self, layer: StoredLayer) -> ImageManifest:
        """Return the manifest of the same image, made of one layer."""
        return ImageManifest.model_validate(self.model_dump(exclude={"disk_file"}) | {"layers": (layer,)})


def find(images: Path, name: str) -> tuple[Path, RawDiskManifest] | None:
    """Return the directory and manifest of the image called `name` with its disk, if there is one of that form."""
    for path in sorted(images.glob(f"*/{FILE_NAME}")):
        try:
            with path.open("rb") as file:
                manifest = RawDiskManifest.model_validate_json(file.read(LIMIT_BYTES))
        except (OSError, ValidationError):
            continue
        is_its_own = TEMPLATE_ID.fullmatch(path.parent.name) and manifest.template_id == path.parent.name
        if is_its_own and name in manifest.names and (path.parent / manifest.disk_file).is_file():
            return path.parent, manifest
    return None
