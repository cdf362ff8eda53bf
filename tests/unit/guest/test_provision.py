import os
from pathlib import Path

import pytest

from agentenv.guest import provision
from agentenv.guest.architecture import Architecture
from agentenv.guest.errors import GuestNotProvisioned, KernelDamaged
from agentenv.guest.provision import BootManifest, KernelManifest


def _stage(work: Path, version: str, content: bytes = b"kernel") -> tuple[Path, KernelManifest]:
    staging = work / "kernel"
    staging.mkdir(parents=True)
    (staging / "vmlinux").write_bytes(content)
    return staging, KernelManifest(
        version=version, architecture=Architecture.X86_64, origin="test", inputs="i", size_bytes=len(content)
    )


def test_kernel_published_last_is_found(tmp_path: Path) -> None:
    for number, version in enumerate(["9", "10"]):
        directory = provision.publish_kernel(tmp_path, *_stage(tmp_path / f"work{number}", version))
        os.utime(directory / "manifest.json", (number, number))
    found = provision.find_kernel(tmp_path, "i")
    assert found is not None
    assert found.name == "10"
    assert provision.find_kernel(tmp_path, "other") is None


def test_damaged_kernel_counts_as_absent_and_is_replaced(tmp_path: Path) -> None:
    directory = provision.publish_kernel(tmp_path, *_stage(tmp_path / "work1", "1"))
    (directory / "vmlinux").write_bytes(b"")
    assert provision.find_kernel(tmp_path, "i") is None
    provision.publish_kernel(tmp_path, *_stage(tmp_path / "work2", "1"))
    assert provision.find_kernel(tmp_path, "i") == directory


def test_kernel_in_use_is_not_moved_by_a_repeated_setup(tmp_path: Path) -> None:
    directory = provision.publish_kernel(tmp_path, *_stage(tmp_path / "work1", "1"))
    inode = (directory / "vmlinux").stat().st_ino
    provision.publish_kernel(tmp_path, *_stage(tmp_path / "work2", "1"))
    assert (directory / "vmlinux").stat().st_ino == inode


def test_boot_files_are_what_the_manifest_names(tmp_path: Path) -> None:
    manifest = BootManifest(kernel="kernels/1/vmlinux", initramfs="boot/i", daemon="boot/d", inputs="x", modules=())
    provision.write_boot_manifest(tmp_path, manifest)
    for name in (manifest.kernel, manifest.initramfs):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert provision.find_boot_files(tmp_path).kernel == tmp_path / "kernels/1/vmlinux"
    (tmp_path / "boot/i").unlink()
    with pytest.raises(GuestNotProvisioned, match="aenv setup"):
        provision.find_boot_files(tmp_path)


def test_home_without_boot_files_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(GuestNotProvisioned, match="run `aenv setup`"):
        provision.find_boot_files(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"kernel": 1}', b"\xff\xfe", b"1" * 200_000])
def test_broken_manifest_is_reported_as_damage(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/manifest.json").write_bytes(content)
    with pytest.raises(KernelDamaged):
        provision.read_boot_manifest(tmp_path)


def test_only_what_was_replaced_long_ago_is_removed(tmp_path: Path) -> None:
    kept_kernel = provision.publish_kernel(tmp_path, *_stage(tmp_path / "work1", "2"))
    old_kernel = provision.publish_kernel(tmp_path, *_stage(tmp_path / "work2", "1"))
    boot = tmp_path / "boot"
    boot.mkdir()
    names = ["initramfs-now", "initramfs-old", "initramfs-coming", "daemon-now", "daemon-old"]
    for number, name in enumerate(names):
        (boot / name).write_bytes(b"")
        os.utime(boot / name, (number, number))
    os.utime(old_kernel, (0, 0))
    os.utime(boot / "initramfs-coming", (9000, 9000))
    current = BootManifest(
        kernel="kernels/2/vmlinux", initramfs="boot/initramfs-now", daemon="boot/daemon-now", inputs="i", modules=()
    )
    provision.write_boot_manifest(tmp_path, current)

    removed = provision.remove_replaced(tmp_path, now=10_000)

    assert set(removed) == {old_kernel, boot / "initramfs-old", boot / "daemon-old"}
    assert not any(path.exists() for path in removed)
    assert kept_kernel.is_dir()
    assert (boot / "initramfs-coming").exists()
    assert provision.remove_replaced(tmp_path / "nothing", now=10_000) == []
