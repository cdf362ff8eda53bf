"""Step: the initramfs, packed from the daemon and the kernel's drivers; it makes both what guests boot from."""

import hashlib
from pathlib import Path

from agentenv.base import files
from agentenv.base.units import format_bytes
from agentenv.guest import initramfs, modules, provision
from agentenv.guest.errors import KernelDamaged
from agentenv.guest.modules import Module
from agentenv.guest.provision import BootManifest
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.step import Finding, Say
from agentenv.main.setup.steps.daemon import GuestDaemon
from agentenv.main.setup.steps.kernel import GuestKernel


class Initramfs:
    """Keeps the initramfs and the record of what guests boot from."""

    name = "initramfs"

    def __init__(self, context: Context, kernel: GuestKernel, daemon: GuestDaemon) -> None:
        self._context = context
        self._kernel = kernel
        self._daemon = daemon

    async def inspect(self) -> Finding:
        """Look for the initramfs of the present kernel and daemon, and whether guests boot from it."""
        kernel, daemon = self._kernel.find(), self._daemon.find()
        if kernel is None or daemon is None:
            return Finding(False, "waits for the guest kernel and the guest daemon")
        try:
            manifest = provision.read_boot_manifest(self._context.home)
        except KernelDamaged as error:
            return Finding(False, error.message)
        if manifest is None or manifest.inputs != _inputs(kernel, daemon):
            return Finding(False, "not packed from the present kernel and daemon")
        if not (self._context.home / manifest.initramfs).is_file():
            return Finding(False, f"{manifest.initramfs} is missing")
        return Finding(True, f"{Path(manifest.initramfs).name}, {len(manifest.modules)} modules")

    async def perform(self, say: Say) -> str:
        """Pack it under a name of its own, then make it the current one."""
        kernel, daemon = self._kernel.find(), self._daemon.find()
        if kernel is None or daemon is None:
            raise SetupFailed("there is no guest kernel or no guest daemon to pack")
        say("packing")
        drivers = await self._collect_modules(kernel)
        content = await self._context.pool.run(initramfs.pack, daemon.read_bytes(), drivers)
        inputs = _inputs(kernel, daemon)
        path = self._context.home / "boot" / f"initramfs-{inputs[:16]}.cpio"
        files.write_atomically(path, content)
        manifest = BootManifest(
            kernel=str((kernel / "vmlinux").relative_to(self._context.home)),
            initramfs=str(path.relative_to(self._context.home)),
            daemon=str(daemon.relative_to(self._context.home)),
            inputs=inputs,
            modules=tuple(driver.name for driver in drivers),
        )
        provision.write_boot_manifest(self._context.home, manifest)
        return f"{path.name}, {format_bytes(len(content))}, {len(drivers)} modules"

    async def _collect_modules(self, kernel: Path) -> list[Module]:
        directory = kernel / "modules"
        if not directory.is_dir():
            return []
        scratch = self._context.work / "modules"
        scratch.mkdir()
        tree = await self._context.pool.run(modules.read_tree, directory)
        return await modules.collect(self._context.pool, tree, scratch)


def _inputs(kernel: Path, daemon: Path) -> str:
    digest = hashlib.sha256(f"{initramfs.LAYOUT_VERSION}\0{kernel.name}\0".encode())
    digest.update(daemon.read_bytes())
    return digest.hexdigest()
