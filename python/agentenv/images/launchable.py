"""From what is written of an image to what can be launched; a layer that should be here and is not is damage."""

from pathlib import Path

from agentenv.base.ids import TemplateId
from agentenv.blocks.base import LayerSource, Stack
from agentenv.images import shelf
from agentenv.images.base import Image
from agentenv.images.errors import ImageDamaged
from agentenv.images.manifest import ImageLayer, ImageManifest, StoredLayer


def to_image(home: Path, manifest: ImageManifest) -> Image:
    """Return what can be launched. Raises `ImageDamaged` when a layer is not on the shelf of `home`, or cut short."""
    layers = tuple(_source(home, manifest, layer) for layer in manifest.layers)
    return Image(
        template_id=TemplateId(manifest.template_id),
        names=manifest.names,
        disk=Stack(layers, manifest.disk_size_bytes),
        vcpus=manifest.vcpus,
        memory_mib=manifest.memory_mib,
        environment=manifest.environment,
        default_user=manifest.default_user,
        default_workdir=manifest.default_workdir,
    )


def _source(home: Path, manifest: ImageManifest, layer: ImageLayer) -> LayerSource:
    if not isinstance(layer, StoredLayer):
        return layer
    found = shelf.find(home, layer)
    if found is None:
        path = shelf.place(home, layer.digest)
        raise ImageDamaged(
            f"image {manifest.template_id}: the layer {path} is missing or cut short; run `aenv setup --refresh`"
        )
    return found
