"""Merges real layers, through the Rust module. Its own file, so that the rules can be tested without the module."""

from collections.abc import Sequence
from pathlib import Path

from agentenv.blocks.layers import LayerFiles
from agentenv.snapshots.base import FileRecord


class LayerMerger:
    """Implements `Merger`."""

    def __init__(self, files: LayerFiles) -> None:
        self._files = files

    async def merge(self, layers: Sequence[Path], output: Path) -> FileRecord:
        """Write the layer that can take the place of `layers`."""
        written = await self._files.merge(layers, output)
        return FileRecord(written.digest, written.file_bytes)
