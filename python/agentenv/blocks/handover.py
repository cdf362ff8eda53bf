"""Gives a sealed layer a second name, durable at once. Blocks; no byte passes through this process."""

import contextlib
import errno
import os
import secrets
from pathlib import Path

from agentenv.base import files

_CHUNK_BYTES = 64 * 1024 * 1024


def give(source: Path, target: Path) -> None:
    """Make `target` a durable file with the content of `source`: a hard link, or a copy on another file system.

    Whoever sees `target` sees all of it. One that is there already is kept: it is from an earlier call.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}:
            raise
        _copy(source, target)
    files.sync_directory(target.parent)


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with source.open("rb") as reader, temporary.open("xb") as writer:
            done, size = 0, os.fstat(reader.fileno()).st_size
            while done < size:
                # copy_file_range would refuse two kinds of file systems, and blocks cannot be shared across two anyway.
                done += _send(writer.fileno(), reader.fileno(), done, min(size - done, _CHUNK_BYTES))
            os.fsync(writer.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _send(target: int, source: int, offset: int, count: int) -> int:
    sent = os.sendfile(target, source, offset, count)
    if sent == 0:
        raise OSError(errno.EIO, "the layer became shorter while it was copied")
    return sent
