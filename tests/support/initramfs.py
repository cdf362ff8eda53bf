"""A guest's first file system with a single program in it, packed as the kernel expects it."""

import lzma
from collections.abc import Mapping
from pathlib import Path

from agentenv.base import process

_MAGIC = "070701"
_TRAILER = "TRAILER!!!"


async def compile_test_init(program: Path) -> None:
    """Compile the first process of the guests of the tests of `vmm`: one file, statically, so that it needs nothing."""
    source = Path(__file__).parents[1] / "vm/vmm/test_init.rs"
    flags = ("--edition=2021", "-Copt-level=s", "-Cpanic=abort", "-Cstrip=symbols", "-Ctarget-feature=+crt-static")
    await process.run(("rustc", *flags, "-o", program, source), timeout_seconds=120)


def read_balloon_modules(kernel: Path) -> dict[str, bytes]:
    """Return the modules that give a guest its balloon, from beside its kernel, by file name."""
    found = {}
    for name in ("virtio_mmio.ko", "virtio_balloon.ko"):
        (packed,) = (kernel.parent / "modules").rglob(f"{name}*")
        content = packed.read_bytes()
        found[name] = lzma.decompress(content) if packed.suffix == ".xz" else content
    return found


def pack(init: Path, files: Mapping[str, bytes] | None = None) -> bytes:
    """Return an archive with `init` as /init, the mount points it needs, /dev/console, and other files."""
    entries = [_entry(name, mode=0o040755) for name in ("dev", "proc", "sys")]
    entries.append(_entry("dev/console", mode=0o020600, device=(5, 1)))
    entries.append(_entry("init", mode=0o100755, content=init.read_bytes()))
    entries += [_entry(name, mode=0o100644, content=content) for name, content in (files or {}).items()]
    return b"".join([*entries, _entry(_TRAILER, mode=0)])


def _entry(name: str, *, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
    header = (_MAGIC + "".join(f"{field:08X}" for field in fields)).encode() + encoded
    return _pad(header) + _pad(content)


def _pad(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
