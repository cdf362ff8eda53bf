"""A guest's first file system with a single program in it, packed as the kernel expects it."""

from pathlib import Path

_MAGIC = "070701"
_TRAILER = "TRAILER!!!"


def pack(init: Path) -> bytes:
    """Return an archive with `init` as /init, the mount points it needs and /dev/console."""
    entries = [_entry(name, mode=0o040755) for name in ("dev", "proc", "sys")]
    entries.append(_entry("dev/console", mode=0o020600, device=(5, 1)))
    entries.append(_entry("init", mode=0o100755, content=init.read_bytes()))
    return b"".join([*entries, _entry(_TRAILER, mode=0)])


def _entry(name: str, *, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
    header = (_MAGIC + "".join(f"{field:08X}" for field in fields)).encode() + encoded
    return _pad(header) + _pad(content)


def _pad(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
