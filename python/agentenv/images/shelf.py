"""The layers of images on this host: `layers/sha256-<hex>` of their content. Owns the names in that directory."""

from pathlib import Path

from agentenv.base import files
from agentenv.blocks.base import FileLayer
from agentenv.blocks.layers import LayerFiles
from agentenv.images.manifest import StoredLayer

DIRECTORY = "layers"


def place(home: Path, digest: str) -> Path:
    """Return where the layer with this digest, `sha256:<hex>`, lies."""
    return home / DIRECTORY / digest.replace(":", "-")


def find(home: Path, layer: StoredLayer) -> FileLayer | None:
    """Return a layer, or None when it is not there in its full size."""
    path = place(home, layer.digest)
    try:
        is_whole = path.stat().st_size == layer.size_bytes
    except OSError:
        return None
    return FileLayer(path, layer.digest) if is_whole else None


async def store(home: Path, raw: Path, work: Path, layer_files: LayerFiles) -> StoredLayer:
    """Make a layer of the raw disk image `raw`, durably. `work` is scratch room on the same file system."""
    scratch = work / "layer"
    written = await layer_files.commit(raw, scratch)
    target = place(home, written.digest)
    target.parent.mkdir(mode=0o700, exist_ok=True)
    # Equal content may be there already, open in the block daemon: the new file takes its place unseen.
    scratch.replace(target)
    files.sync_directory(target.parent)
    return StoredLayer(digest=written.digest, size_bytes=written.file_bytes)
