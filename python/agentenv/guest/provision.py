"""The boot files under the home directory: where kernels and the initramfs are kept, and which are in use."""

import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agentenv.base import files
from agentenv.guest.architecture import Architecture
from agentenv.guest.base import BootFiles
from agentenv.guest.errors import GuestNotProvisioned, KernelDamaged

_MANIFEST_LIMIT_BYTES = 64 * 1024
_REMEDY = "run `aenv setup`"
_SETTLED_SECONDS = 3600


class KernelManifest(BaseModel):
    """What is known of a kernel in `kernels/<version>`, beside its `vmlinux` and `modules`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str
    architecture: Architecture
    origin: str
    inputs: str
    size_bytes: int


class BootManifest(BaseModel):
    """What guests boot from now. Paths are relative to the home directory."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernel: str
    initramfs: str
    daemon: str
    inputs: str
    modules: tuple[str, ...]


def find_kernel(home: Path, inputs: str) -> Path | None:
    """Return the directory of the kernel that was provisioned last from `inputs` and is whole, if there is one."""
    manifests = sorted(home.glob("kernels/*/manifest.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in manifests:
        try:
            manifest = KernelManifest.model_validate_json(_read(path))
        except (OSError, ValidationError):
            continue
        if manifest.inputs == inputs and _is_whole(path.parent, manifest):
            return path.parent
    return None


def publish_kernel(home: Path, staging: Path, manifest: KernelManifest) -> Path:
    """Move the kernel directory `staging` to its place under `kernels`, and make it the newest of its inputs.

    A whole kernel of that version stays as it is, for a machine may be starting from it.
    """
    target = home / "kernels" / manifest.version
    if _is_whole(target, manifest):
        _write_kernel_manifest(target, manifest)
        return target
    _write_kernel_manifest(staging, manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target.rename(staging.with_name(f"{staging.name}-damaged"))
    staging.rename(target)
    files.sync_directory(target.parent)
    return target


def _write_kernel_manifest(directory: Path, manifest: KernelManifest) -> None:
    files.write_atomically(directory / "manifest.json", manifest.model_dump_json(indent=2).encode() + b"\n")


def _is_whole(directory: Path, manifest: KernelManifest) -> bool:
    kernel = directory / "vmlinux"
    return kernel.is_file() and kernel.stat().st_size == manifest.size_bytes


def read_boot_manifest(home: Path) -> BootManifest | None:
    """Return what guests boot from, or None before the first setup. Raises `KernelDamaged` on a broken manifest."""
    path = home / "boot" / "manifest.json"
    try:
        return BootManifest.model_validate_json(_read(path))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise KernelDamaged(f"{path} cannot be read; {_REMEDY}") from error


def write_boot_manifest(home: Path, manifest: BootManifest) -> None:
    """Make guests boot from what `manifest` names."""
    files.write_atomically(home / "boot" / "manifest.json", manifest.model_dump_json(indent=2).encode() + b"\n")


def find_boot_files(home: Path) -> BootFiles:
    """Return what a guest boots from. Raises `GuestNotProvisioned` when setup has not been run or has lost files."""
    manifest = read_boot_manifest(home)
    if manifest is None:
        raise GuestNotProvisioned(f"no guest kernel is prepared under {home}; {_REMEDY}")
    boot = BootFiles(home / manifest.kernel, home / manifest.initramfs)
    for path in (boot.kernel, boot.initramfs):
        if not path.is_file():
            raise GuestNotProvisioned(f"{path} is missing; {_REMEDY}")
    return boot


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MANIFEST_LIMIT_BYTES)


def remove_replaced(home: Path, *, now: float) -> list[Path]:
    """Delete kernels, initramfs and daemons that setup has replaced, and return them; `now` is a Unix time.

    Call it only while no server of this home runs: one that does starts guests from what it found at its start.
    What is younger than an hour stays, for a setup under way may be about to name it in its manifest.
    """
    manifest = read_boot_manifest(home)
    if manifest is None:
        return []
    named = {home / manifest.initramfs, home / manifest.daemon, (home / manifest.kernel).parent}
    candidates = [*home.glob("boot/initramfs-*"), *home.glob("boot/daemon-*"), *home.glob("kernels/*")]
    replaced = [path for path in candidates if path not in named and now - path.stat().st_mtime > _SETTLED_SECONDS]
    for path in replaced:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return replaced
