import bz2
import gzip
import lzma
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.base import process
from agentenv.base.aio import BlockingPool
from agentenv.guest import decompress, kernel
from agentenv.guest.architecture import Architecture
from agentenv.guest.errors import BootFileRefused, KernelDamaged
from support.elf import build_elf, build_kernel, build_note

X86 = Architecture.X86_64


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    pool = BlockingPool("test", 1)
    yield pool
    pool.close()


def _bzimage(payload: bytes, *, version: int = 0x20F, length: int | None = None) -> bytes:
    head = bytearray(1024 + 512)
    head[0x1F1] = 2
    head[0x1FE:0x200] = b"\x55\xaa"
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x206, version)
    struct.pack_into("<II", head, 0x248, 16, len(payload) if length is None else length)
    head[:2] = b"MZ"
    return bytes(head) + bytes(16) + payload


def _with_size(packed: bytes, unpacked: bytes) -> bytes:
    return packed + struct.pack("<I", len(unpacked))


@pytest.mark.parametrize("packing", ["gzip", "xz", "lzma", "bzip2", "zstd"])
async def test_vmlinux_is_taken_out_of_a_bzimage(packing: str, tmp_path: Path, pool: BlockingPool) -> None:
    vmlinux = build_kernel() + bytes(range(256)) * 4096
    match packing:
        case "gzip":
            payload = gzip.compress(vmlinux)
        case "xz":
            payload = _with_size(lzma.compress(vmlinux), vmlinux)
        case "lzma":
            payload = _with_size(lzma.compress(vmlinux, lzma.FORMAT_ALONE), vmlinux)
        case "bzip2":
            payload = _with_size(bz2.compress(vmlinux), vmlinux)
        case _:
            packed = await process.run(["zstd", "-q", "-c"], stdin=vmlinux)
            payload = _with_size(packed.stdout, vmlinux)
    (tmp_path / "vmlinuz").write_bytes(_bzimage(payload))
    await kernel.convert(pool, tmp_path / "vmlinuz", tmp_path / "vmlinux", X86)
    assert (tmp_path / "vmlinux").read_bytes() == vmlinux


async def test_ready_vmlinux_is_copied(tmp_path: Path, pool: BlockingPool) -> None:
    (tmp_path / "in").write_bytes(build_kernel())
    await kernel.convert(pool, tmp_path / "in", tmp_path / "out", X86)
    assert (tmp_path / "out").read_bytes() == build_kernel()


async def test_arm64_image_is_taken_out_of_gzip(tmp_path: Path, pool: BlockingPool) -> None:
    image = bytes(56) + b"ARM\x64" + bytes(4096)
    (tmp_path / "in").write_bytes(gzip.compress(image))
    await kernel.convert(pool, tmp_path / "in", tmp_path / "out", Architecture.AARCH64)
    assert (tmp_path / "out").read_bytes() == image


async def test_arm64_image_is_taken_out_of_an_efi_wrapper(tmp_path: Path, pool: BlockingPool) -> None:
    image = bytes(56) + b"ARM\x64" + bytes(4096)
    packed = gzip.compress(image)
    head = b"MZ\0\0zimg" + struct.pack("<II", 4096, len(packed)) + bytes(8) + b"gzip"
    (tmp_path / "in").write_bytes(head.ljust(4096, b"\0") + packed)
    await kernel.convert(pool, tmp_path / "in", tmp_path / "out", Architecture.AARCH64)
    assert (tmp_path / "out").read_bytes() == image


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "cut short"),
        (b"#!/bin/sh\n" * 100, "no 64-bit"),
        (build_elf(machine=183, notes=build_note(b"Xen", 18)), "another architecture"),
        (build_elf(notes=build_note(b"Xen", 17)), "CONFIG_PVH"),
        (_bzimage(b"\x89LZO....", length=8), "packed in a way"),
        (_bzimage(b"12345678", version=0x205), "older than 2.08"),
    ],
)
async def test_file_that_no_monitor_could_start_is_refused(
    content: bytes, reason: str, tmp_path: Path, pool: BlockingPool
) -> None:
    (tmp_path / "in").write_bytes(content)
    with pytest.raises(BootFileRefused, match=reason):
        await kernel.convert(pool, tmp_path / "in", tmp_path / "out", X86)


@pytest.mark.parametrize("length", [0, 7, 9, 0xFFFFFFFF])
async def test_payload_outside_of_the_file_is_damage(length: int, tmp_path: Path, pool: BlockingPool) -> None:
    (tmp_path / "in").write_bytes(_bzimage(b"12345678", length=length))
    with pytest.raises(KernelDamaged):
        await kernel.convert(pool, tmp_path / "in", tmp_path / "out", X86)


async def test_truncated_stream_is_damage(tmp_path: Path, pool: BlockingPool) -> None:
    payload = lzma.compress(build_kernel() * 50)
    (tmp_path / "in").write_bytes(_bzimage(payload[: len(payload) // 2]))
    with pytest.raises(KernelDamaged):
        await kernel.convert(pool, tmp_path / "in", tmp_path / "out", X86)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
async def test_stream_larger_than_the_limit_is_stopped(pack: object, tmp_path: Path, pool: BlockingPool) -> None:
    assert callable(pack)
    with pytest.raises(KernelDamaged, match="larger than"):
        await decompress.expand(pool, pack(bytes(8 << 20)), tmp_path / "out", limit_bytes=3 << 20)
    assert (tmp_path / "out").stat().st_size <= 3 << 20


async def test_zstd_stream_larger_than_the_limit_is_stopped(tmp_path: Path, pool: BlockingPool) -> None:
    packed = await process.run(["zstd", "-q", "-c"], stdin=bytes(range(256)) * (8 << 12))
    with pytest.raises(KernelDamaged):
        await decompress.expand(pool, packed.stdout, tmp_path / "out", limit_bytes=3 << 20)
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_size > 3 << 20] == []


@given(st.binary(max_size=4096), st.integers(0, 1 << 32))
def test_any_head_is_judged_without_a_crash(head: bytes, size: int) -> None:
    try:
        payload = kernel.find_payload(head, size)
    except (BootFileRefused, KernelDamaged):
        return
    assert payload is None or payload.offset + payload.length <= size
