"""Local copies of blobs, by digest, within a limit: the least recently used go first. Blocking."""

import os
from collections.abc import Collection
from pathlib import Path

from agentenv.objects import names


class BlobCache:
    """Invariant: a file here is whole, for it is renamed to its place after it was checked."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes

    def make(self) -> None:
        """Make the directory."""
        self._directory.mkdir(parents=True, exist_ok=True)

    def find(self, digest: str) -> Path | None:
        """Return a copy, marked as used now, or None."""
        path = self.place(digest)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        return path

    def place(self, digest: str) -> Path:
        """Return where a copy belongs."""
        return self._directory / names.hexadecimal(digest)

    def trim(self, keep: Collection[str]) -> list[str]:
        """Remove copies until the limit is met, but none in `keep`; return their digests."""
        copies = [(entry.stat(), entry.name) for entry in os.scandir(self._directory)]
        excess = sum(found.st_size for found, _ in copies) - self._limit_bytes
        removed = []
        for found, name in sorted(copies, key=lambda copy: copy[0].st_mtime_ns):
            digest = names.digest_of(name)
            if excess <= 0:
                break
            if digest is None or digest in keep:
                continue
            (self._directory / name).unlink(missing_ok=True)
            excess -= found.st_size
            removed.append(digest)
        return removed
