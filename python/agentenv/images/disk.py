"""Makes ext4 disks out of directories, arranged for being the base of many clones."""

import os
import uuid
from pathlib import Path

from agentenv.base import process
from agentenv.base.errors import AgentEnvError
from agentenv.base.units import MIB
from agentenv.images.errors import BuildFailed

_TIMEOUT_SECONDS = 900
# Named one by one, so that the host's mke2fs.conf does not decide what guests must be able to mount.
_FEATURES = (
    *("none", "has_journal", "ext_attr", "resize_inode", "dir_index", "filetype", "extent", "64bit", "flex_bg"),
    *("sparse_super", "large_file", "huge_file", "dir_nlink", "extra_isize", "metadata_csum"),
)
# Each clone writes its own copy of the journal: a small one bounds that, and still survives a crash.
_JOURNAL_MIB = 16


async def make_ext4(root: Path, disk: Path, *, size_mib: int, identity: uuid.UUID) -> None:
    """Write the directory `root` into the new sparse file `disk`. Raises `BuildFailed`; the caller removes the file."""
    with disk.open("xb") as file:
        file.truncate(size_mib * MIB)
    extended = f"hash_seed={identity},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
    command: list[str | Path] = [
        *("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-m", "0", "-i", "16384"),
        *("-O", ",".join(_FEATURES), "-J", f"size={_JOURNAL_MIB}", "-E", extended),
        *("-U", str(identity), "-L", "", "-d", root, disk),
    ]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "MKE2FS_CONFIG": os.devnull, "LC_ALL": "C.UTF-8"}
    try:
        await process.run(command, timeout_seconds=_TIMEOUT_SECONDS, environment=environment)
    except AgentEnvError as error:
        raise BuildFailed(f"the disk of the image could not be made: {error.message}") from error
    descriptor = os.open(disk, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
