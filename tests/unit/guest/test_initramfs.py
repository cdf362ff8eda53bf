from pathlib import Path

import pytest

from agentenv.guest import initramfs
from agentenv.guest.architecture import Architecture
from agentenv.guest.errors import BootFileRefused
from agentenv.guest.modules import Module
from support.elf import build_elf


def test_equal_inputs_give_equal_bytes_with_the_load_order_inside() -> None:
    drivers = [Module("virtio_mmio", b"one"), Module("virtio_blk", b"two")]
    packed = initramfs.pack(b"daemon", drivers)
    assert packed == initramfs.pack(b"daemon", drivers)
    assert b"virtio_mmio.ko\nvirtio_blk.ko\n" in packed


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"#!/bin/sh\n" * 50, "no program"),
        (build_elf(machine=183), "another architecture"),
        (build_elf(interpreter=True), "statically"),
    ],
)
def test_daemon_that_cannot_run_in_a_guest_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "daemon"
    path.write_bytes(content)
    with pytest.raises(BootFileRefused, match=reason):
        initramfs.check_daemon(path, Architecture.X86_64)


def test_static_daemon_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "daemon"
    path.write_bytes(build_elf())
    initramfs.check_daemon(path, Architecture.X86_64)
