"""Writes cpio archives in the `newc` form, the one that the kernel unpacks as initramfs. Deterministic."""

import stat
from dataclasses import dataclass

_MAGIC = b"070701"
_TRAILER = "TRAILER!!!"
_BLOCK = 512
_LONGEST_PATH = 4095
_LARGEST_FILE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of an archive. `path` is relative, without `.` and `..`; `mode` holds type and permissions."""

    path: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        parts = self.path.split("/")
        if not self.path or any(part in {"", ".", ".."} for part in parts) or "\0" in self.path:
            raise ValueError(f"{self.path!r} is no relative path")
        if len(self.path.encode()) > _LONGEST_PATH or len(self.content) > _LARGEST_FILE:
            raise ValueError(f"{self.path[:64]!r} does not fit the format")


def directory(path: str, permissions: int = 0o755) -> Entry:
    """Return a directory."""
    return Entry(path, stat.S_IFDIR | permissions)


def file(path: str, content: bytes, permissions: int = 0o644) -> Entry:
    """Return a regular file."""
    return Entry(path, stat.S_IFREG | permissions, content)


def character_device(path: str, major: int, minor: int, permissions: int = 0o600) -> Entry:
    """Return a character device node."""
    return Entry(path, stat.S_IFCHR | permissions, device=(major, minor))


def write(entries: list[Entry]) -> bytes:
    """Return an archive of `entries`, in their order: a directory comes before what is in it."""
    archive = bytearray()
    for number, entry in enumerate(entries, start=1):
        _append(archive, number, entry.path, entry)
    _append(archive, 0, _TRAILER, None)
    archive.extend(bytes(-len(archive) % _BLOCK))
    return bytes(archive)


def _append(archive: bytearray, inode: int, path: str, entry: Entry | None) -> None:
    name = path.encode() + b"\0"
    content = entry.content if entry else b""
    mode = entry.mode if entry else 0
    major, minor = entry.device if entry else (0, 0)
    links = 2 if stat.S_ISDIR(mode) else 1
    # inode, mode, uid, gid, nlink, mtime, filesize, dev major and minor, rdev major and minor, namesize, check
    fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, major, minor, len(name), 0)
    archive += _MAGIC + b"".join(b"%08X" % field for field in fields) + name
    archive.extend(bytes(-len(archive) % 4))
    archive += content
    archive.extend(bytes(-len(archive) % 4))
