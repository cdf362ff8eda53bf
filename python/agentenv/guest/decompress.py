"""Decompresses kernels and modules, with an upper bound on what comes out. Owns the table of formats."""

import bz2
import lzma
import zlib
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from agentenv.base import process
from agentenv.base.aio import BlockingPool
from agentenv.base.errors import Unavailable
from agentenv.guest.errors import KernelDamaged


class Compression(StrEnum):
    """How the bytes of a kernel or module are packed."""

    NONE = "none"
    GZIP = "gzip"
    XZ = "xz"
    LZMA = "lzma"
    BZIP2 = "bzip2"
    ZSTD = "zstd"
    LZ4 = "lz4"


_MAGICS = (
    (b"\x1f\x8b", Compression.GZIP),
    (b"\xfd7zXZ\0", Compression.XZ),
    (b"\x5d\0\0", Compression.LZMA),
    (b"BZh", Compression.BZIP2),
    (b"\x28\xb5\x2f\xfd", Compression.ZSTD),
    (b"\x02\x21\x4c\x18", Compression.LZ4),
)
_STEP_BYTES = 1 << 20
_TOOL_TIMEOUT_SECONDS = 120


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, content: bytes, limit: int, /) -> bytes: ...


def recognise(head: bytes) -> Compression:
    """Return the format that `head` begins; NONE when it is no known one."""
    return next((compression for magic, compression in _MAGICS if head.startswith(magic)), Compression.NONE)


async def expand(pool: BlockingPool, content: bytes, target: Path, *, limit_bytes: int) -> None:
    """Write the decompressed `content` to `target`, at most `limit_bytes` of it.

    Bytes after the end of the compressed stream are ignored. Raises `KernelDamaged` when it is not whole or too large.
    """
    compression = recognise(content)
    match compression:
        case Compression.NONE:
            await pool.run(target.write_bytes, content)
        case Compression.ZSTD | Compression.LZ4:
            await _expand_by_tool(compression, content, target, limit_bytes)
        case Compression.GZIP | Compression.XZ | Compression.LZMA | Compression.BZIP2:
            await pool.run(_expand_here, compression, content, target, limit_bytes)


def _expand_here(compression: Compression, content: bytes, target: Path, limit_bytes: int) -> None:
    decoder = _decoder(compression)
    written, pending = 0, content
    try:
        with target.open("wb") as file:
            while not decoder.eof:
                piece = decoder.decompress(pending, _STEP_BYTES)
                # zlib hands back the input it did not use; the others keep it.
                pending = getattr(decoder, "unconsumed_tail", b"")
                written += len(piece)
                if written > limit_bytes:
                    raise KernelDamaged(f"{target.name} is larger than {limit_bytes} bytes")
                if not piece and not pending and not decoder.eof:
                    raise KernelDamaged(f"{target.name} is cut short")
                file.write(piece)
    except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
        raise KernelDamaged(f"{target.name} does not decompress as {compression}: {error}") from error


def _decoder(compression: Compression) -> _Decoder:
    match compression:
        case Compression.GZIP:
            return zlib.decompressobj(wbits=31)
        case Compression.XZ | Compression.LZMA:
            return lzma.LZMADecompressor(lzma.FORMAT_AUTO)
        case _:
            return bz2.BZ2Decompressor()


async def _expand_by_tool(compression: Compression, content: bytes, target: Path, limit_bytes: int) -> None:
    # The limit on file size is the kernel's, so a stream that lies about its length cannot fill the disk.
    packed = target.with_name(f"{target.name}.packed")
    packed.write_bytes(content)
    destination = ["-o", target] if compression is Compression.ZSTD else [target]
    command = ["prlimit", f"--fsize={limit_bytes}", compression.value, "-d", "-q", "-f", packed, *destination]
    try:
        await process.run(command, timeout_seconds=_TOOL_TIMEOUT_SECONDS)
    except Unavailable as error:
        raise KernelDamaged(f"{target.name} does not decompress: {error.message}") from error
    finally:
        packed.unlink()
