"""Packs the initramfs: our daemon as `/init`, and the drivers that it loads before there is a disk."""

from collections.abc import Sequence
from pathlib import Path

from agentenv.guest import cpio, elf
from agentenv.guest.architecture import Architecture
from agentenv.guest.errors import BootFileRefused
from agentenv.guest.modules import Module

# Raise it when what `pack` writes changes, so that it is packed anew.
LAYOUT_VERSION = 2
_PT_INTERP = 3


def pack(daemon: bytes, modules: Sequence[Module]) -> bytes:
    """Return the initramfs; equal inputs give equal bytes."""
    files = [module.name + ".ko" for module in modules]
    entries = [
        cpio.directory("dev"),
        # The kernel opens it for the first process before anything is mounted.
        cpio.character_device("dev/console", 5, 1),
        cpio.directory("proc"),
        cpio.directory("sys"),
        cpio.directory("modules"),
        cpio.file("modules/load", "".join(f"{name}\n" for name in files).encode()),
        *(cpio.file(f"modules/{name}", module.content) for name, module in zip(files, modules, strict=True)),
        cpio.file("init", daemon, 0o755),
    ]
    # Not compressed: an emulated guest spends 54 million instructions on unpacking gzip or zstd, and the file is small.
    return cpio.write(entries)


def check_daemon(path: Path, architecture: Architecture) -> None:
    """Raise `BootFileRefused` unless `path` is a static program for guests: there is no library to load there."""
    try:
        with path.open("rb") as file:
            machine = elf.read_header(file).machine
            is_dynamic = elf.has_segment(file, _PT_INTERP)
    except elf.NotElf as error:
        raise BootFileRefused(f"{path} is no program: {error}") from error
    if machine != architecture.elf_machine:
        raise BootFileRefused(f"{path} is a program for another architecture")
    if is_dynamic:
        raise BootFileRefused(f"{path} is not linked statically")
