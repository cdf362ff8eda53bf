"""Turns kernel files of any usual packing into the one that our monitors start. Judges files; fetches nothing."""

import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.aio import BlockingPool
from agentenv.guest import decompress, elf
from agentenv.guest.architecture import Architecture
from agentenv.guest.decompress import Compression
from agentenv.guest.errors import BootFileRefused, KernelDamaged

KERNEL_LIMIT_BYTES = 512 << 20
_PACKED_LIMIT_BYTES = 128 << 20
_HEAD_BYTES = 4096
_SECTOR = 512
# The note by which a kernel says where a monitor may enter it in 32-bit mode without firmware (PVH).
_PVH_NOTE_OWNER, _PVH_NOTE_KIND = b"Xen", 18


@dataclass(frozen=True, slots=True)
class Payload:
    """Where the packed kernel lies inside of a boot image."""

    offset: int
    length: int


def find_payload(head: bytes, size: int) -> Payload | None:
    """Return the packed kernel of the boot image of `size` bytes that begins with `head`; None when it is no wrapper.

    Raises `KernelDamaged` when the header points outside of the file.
    """
    payload = _bzimage_payload(head) or _zboot_payload(head)
    if payload is None and decompress.recognise(head) is Compression.GZIP:
        payload = Payload(0, size)
    if payload is not None and (payload.length < 8 or payload.offset + payload.length > size):
        raise KernelDamaged("the kernel's header points outside of the file")
    return payload


def _bzimage_payload(head: bytes) -> Payload | None:
    if len(head) < 0x250 or head[0x1FE:0x200] != b"\x55\xaa" or head[0x202:0x206] != b"HdrS":
        return None
    (version,) = struct.unpack_from("<H", head, 0x206)
    if version < 0x208:
        raise BootFileRefused("the kernel's boot protocol is older than 2.08")
    offset, length = struct.unpack_from("<II", head, 0x248)
    # A count of 0 means 4, a habit from the days of floppy disks.
    setup_sectors = head[0x1F1] or 4
    return Payload((setup_sectors + 1) * _SECTOR + offset, length)


def _zboot_payload(head: bytes) -> Payload | None:
    if len(head) < 64 or head[:2] != b"MZ" or head[4:8] != b"zimg":
        return None
    return Payload(*struct.unpack_from("<II", head, 8))


async def convert(pool: BlockingPool, source: Path, target: Path, architecture: Architecture) -> None:
    """Write the kernel in `source` to `target`, uncompressed: an ELF vmlinux on x86-64, an Image on arm64.

    Raises `BootFileRefused` for a file that is no kernel of this architecture, `KernelDamaged` for a broken one.
    """
    size = source.stat().st_size
    with source.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        payload = find_payload(head, size)
        if payload is None:
            packed = None
        elif payload.length > _PACKED_LIMIT_BYTES:
            raise BootFileRefused(f"{source} holds a packed kernel of {payload.length} bytes")
        else:
            file.seek(payload.offset)
            packed = file.read(payload.length)
    if packed is None:
        await pool.run(shutil.copyfile, source, target)
    else:
        await decompress.expand(pool, _without_size(source, packed), target, limit_bytes=KERNEL_LIMIT_BYTES)
    check(target, architecture)


def _without_size(source: Path, packed: bytes) -> bytes:
    """Cut off the unpacked size, which the kernel's build appends to every format that does not carry it itself."""
    match decompress.recognise(packed):
        case Compression.NONE:
            raise BootFileRefused(f"{source} is packed in a way that is not known here")
        case Compression.GZIP:
            return packed
        case _:
            return packed[:-4]


def check(kernel: Path, architecture: Architecture) -> None:
    """Raise `BootFileRefused` unless `kernel` is something that a monitor of this architecture can start."""
    with kernel.open("rb") as file:
        head = file.read(64)
        if architecture is Architecture.AARCH64:
            if head[56:60] != b"ARM\x64":
                raise BootFileRefused(f"{kernel} is no arm64 kernel image")
            return
        try:
            machine = elf.read_header(file).machine
            is_startable = elf.has_note(file, _PVH_NOTE_OWNER, _PVH_NOTE_KIND)
        except elf.NotElf as error:
            raise BootFileRefused(f"{kernel} is no vmlinux: {error}") from error
    if machine != architecture.elf_machine:
        raise BootFileRefused(f"{kernel} is a kernel of another architecture")
    if not is_startable:
        raise BootFileRefused(f"{kernel} was built without CONFIG_PVH, so a monitor cannot start it directly")
