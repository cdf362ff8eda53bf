"""Cells as files `<key>.<generation>` in a directory: compare-and-set without locks, by exclusive hard links.

Works on every file system whose `link` fails when the name exists, which NFS promises and its locks do not.
Blocking; knows nothing of what is in a cell.
"""

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from agentenv.base import files
from agentenv.base.errors import AgentEnvError
from agentenv.objects.base import CELL_LIMIT_BYTES, Cell, Version
from agentenv.objects.errors import CellChanged, CellDamaged, StoreUnavailable

_GENERATION = re.compile(r"[1-9][0-9]{0,17}")
_SHARDS = 256
_READ_TRIES = 10


class Generations:
    """The cells of one kind below `directory`, spread over shards so that reading one lists few names.

    Invariant: a generation is written once. The highest is the cell's content; lower ones are leftovers.
    """

    def __init__(self, directory: Path, temporary: Path) -> None:
        self._directory = directory
        self._temporary = temporary

    def make(self) -> None:
        """Make the directories, all at once, so that no write has to."""
        self._directory.mkdir(parents=True, exist_ok=True)
        missing = {f"{number:02x}" for number in range(_SHARDS)} - set(_list(self._directory))
        for name in missing:
            (self._directory / name).mkdir(exist_ok=True)
        files.sync_directory(self._directory)

    def read(self, key: str) -> Cell | None:
        """Return a cell, or None."""
        for _ in range(_READ_TRIES):
            generation = max(self._generations(key), default=0)
            if generation == 0:
                return None
            # It can be gone already, when a writer has put the next one and cleaned up.
            with contextlib.suppress(FileNotFoundError):
                return Cell(_read_bounded(self._path(key, generation)), Version(str(generation)))
        raise StoreUnavailable(f"the cell {key} changes faster than it can be read; try again")

    def read_many(self, hints: Mapping[str, Version]) -> dict[str, Cell]:
        """Return those cells that can be read; a hint that still holds saves listing a shard."""
        found = {}
        for key, version in hints.items():
            try:
                found[key] = Cell(_read_bounded(self._path(key, int(version))), version)
            except FileNotFoundError:
                with contextlib.suppress(OSError, AgentEnvError):
                    cell = self.read(key)
                    found |= {} if cell is None else {key: cell}
            except (OSError, CellDamaged):
                continue
        return found

    def write(self, key: str, content: bytes, expected: Version | None) -> Version:
        """Write the generation after `expected`. Raises `CellChanged`."""
        current = max(self._generations(key), default=0)
        if current != int(expected or 0):
            raise CellChanged(f"the cell {key} has changed")
        generation = current + 1
        path = self._path(key, generation)
        self._link(key, content, path)
        # A writer that slept since it looked may have linked a generation that came and went long ago.
        newest = max(self._generations(key), default=0)
        if newest != generation:
            path.unlink(missing_ok=True)
            raise CellChanged(f"the cell {key} has changed")
        files.sync_directory(path.parent)
        for older in self._generations(key):
            if older < generation:
                self._path(key, older).unlink(missing_ok=True)
        return Version(str(generation))

    def forget(self, key: str) -> None:
        """Remove every generation, the oldest first, so that a crash in between leaves the newest."""
        for generation in sorted(self._generations(key)):
            self._path(key, generation).unlink(missing_ok=True)
        files.sync_directory(self._shard(key))

    def all(self) -> dict[str, Version]:
        """Return the newest generation of every cell."""
        newest: dict[str, int] = {}
        for number in range(_SHARDS):
            for name in _list(self._directory / f"{number:02x}"):
                key, _, generation = name.rpartition(".")
                if key and _GENERATION.fullmatch(generation):
                    newest[key] = max(int(generation), newest.get(key, 0))
        return {key: Version(str(generation)) for key, generation in newest.items()}

    def _link(self, key: str, content: bytes, path: Path) -> None:
        temporary = self._temporary / secrets.token_hex(16)
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                # Over NFS a link whose answer was lost is tried again, and then finds itself.
                if temporary.stat().st_nlink != 2:
                    raise CellChanged(f"the cell {key} has changed") from None
        finally:
            temporary.unlink(missing_ok=True)

    def _generations(self, key: str) -> list[int]:
        prefix = f"{key}."
        names = (name[len(prefix) :] for name in _list(self._shard(key)) if name.startswith(prefix))
        return [int(generation) for generation in names if _GENERATION.fullmatch(generation)]

    def _shard(self, key: str) -> Path:
        return self._directory / hashlib.sha256(key.encode()).hexdigest()[:2]

    def _path(self, key: str, generation: int) -> Path:
        return self._shard(key) / f"{key}.{generation}"


def _list(shard: Path) -> list[str]:
    return os.listdir(shard)  # noqa: PTH208 - the fastest way, and a start lists 100,000 names


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(CELL_LIMIT_BYTES + 1)
    if len(content) > CELL_LIMIT_BYTES:
        raise CellDamaged(f"{path} is larger than {CELL_LIMIT_BYTES} bytes")
    return content
