"""Removes directories in which something hostile may have worked. Blocks; follows no link."""

import contextlib
import itertools
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def remove(path: Path) -> None:
    """Delete a file, a link or a directory with all that is in it; one that is gone is fine.

    Neither stack nor open files grow with the depth of the tree, which its writer has chosen.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError:  # no directory; a failure of another kind shows again
        path.unlink(missing_ok=True)
        return
    try:
        _empty(descriptor)
    finally:
        os.close(descriptor)
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()


def _empty(directory: int) -> None:
    """Delete what is in a directory, after moving up into it what its subdirectories hold."""
    fresh = (f".{secrets.token_hex(8)}-{number}" for number in itertools.count())
    while names := os.listdir(directory):
        for name in names:
            try:
                os.unlink(name, dir_fd=directory)
            except FileNotFoundError:
                continue
            except (IsADirectoryError, PermissionError):
                _hoist(directory, name, fresh)
                os.rmdir(name, dir_fd=directory)


def _hoist(directory: int, name: str, fresh: Iterator[str]) -> None:
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        for entry in os.listdir(inner):  # noqa: PTH208 - names are wanted, not paths
            os.rename(entry, next(fresh), src_dir_fd=inner, dst_dir_fd=directory)
    finally:
        os.close(inner)
