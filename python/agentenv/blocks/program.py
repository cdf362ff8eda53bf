"""Which program of the block daemon servers start: copies by what they were made from, and a link to one of them."""

import os
from pathlib import Path

from agentenv.base import files
from agentenv.blocks.errors import DaemonUnprepared
from agentenv.blocks.processes import find_programs

_LINK = "aenv-blockd"
_PREFIX = "blockd-"
_SETTLED_SECONDS = 3600


def place(directory: Path, inputs: str) -> Path:
    """Return where the program made from `inputs` is kept."""
    return directory / f"{_PREFIX}{inputs[:16]}"


def current(directory: Path) -> Path | None:
    """Return the program that servers start, or None when there is none."""
    link = directory / _LINK
    return directory / link.readlink().name if link.is_symlink() and link.is_file() else None


def find(directory: Path) -> Path:
    """Return the program that servers start. Raises `DaemonUnprepared`."""
    found = current(directory)
    if found is None:
        raise DaemonUnprepared(f"no block daemon is prepared in {directory}; run `aenv setup`")
    return found


def use(directory: Path, target: Path) -> None:
    """Make `target`, which lies in `directory`, the program that servers start from now on."""
    temporary = directory / f".{_LINK}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.name)
    temporary.replace(directory / _LINK)
    files.sync_directory(directory)


def remove_replaced(directory: Path, *, now: float) -> list[Path]:
    """Delete programs that neither servers start nor any process runs, and return them; `now` is a Unix time.

    What is younger than an hour stays, for a setup under way may be about to use it.
    """
    kept = {current(directory), *find_programs()}
    removed = []
    for path in directory.glob(f"{_PREFIX}*"):
        if path not in kept and now - path.stat().st_mtime > _SETTLED_SECONDS:
            path.unlink()
            removed.append(path)
    return removed
