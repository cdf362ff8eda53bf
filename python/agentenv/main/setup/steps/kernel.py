"""Step: a guest kernel under `kernels/`, from a configured file or the distribution's package, never installed."""

import hashlib
import shutil
from pathlib import Path

from agentenv.base import process
from agentenv.base.units import format_bytes
from agentenv.guest import kernel, provision
from agentenv.guest.errors import BootFileRefused
from agentenv.guest.provision import KernelManifest
from agentenv.main.setup import host
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.host import Distribution
from agentenv.main.setup.step import Finding, Say

_UNPACK_SECONDS = 300


class GuestKernel:
    """Keeps the kernel that guests boot."""

    name = "guest kernel"

    def __init__(self, context: Context) -> None:
        self._context = context

    def find(self) -> Path | None:
        """Return the directory of the kernel for the inputs of now, if it is there."""
        return provision.find_kernel(self._context.home, self._inputs())

    async def inspect(self) -> Finding:
        """Look for a whole kernel made from the same file, or from the same kind of package."""
        found = self.find()
        return Finding(True, found.name) if found else Finding(False, "no guest kernel is prepared")

    async def perform(self, say: Say) -> str:
        """Convert the configured file, or fetch the newest package of the distribution and unpack it."""
        if self._context.guest.kernel_path is not None:
            return await self._adopt_file(self._context.guest.kernel_path)
        if self._context.distribution is None:
            raise SetupFailed("set guest.kernel_path, because setup does not know this system's kernel packages")
        return await self._fetch_package(self._context.distribution, say)

    async def _adopt_file(self, source: Path) -> str:
        modules = self._context.guest.kernel_modules_path
        if not source.is_file():
            raise BootFileRefused(f"guest.kernel_path {source} is no file")
        if modules is not None and not modules.is_dir():
            raise BootFileRefused(f"guest.kernel_modules_path {modules} is no directory")
        digest = await self._context.pool.run(_digest, source)
        staging = self._staging()
        if modules is not None:
            await self._context.pool.run(shutil.copytree, modules, staging / "modules")
        return await self._publish(staging, source, version=f"file-{digest[:16]}", origin=str(source))

    async def _fetch_package(self, distribution: Distribution, say: Say) -> str:
        package = await self._choose_package(distribution)
        say(f"downloading {package}")
        apt, work = self._context.apt, self._context.work
        archives = [await apt.download(package, work / "kernel-package")]
        modules_package = host.modules_package(package, distribution)
        if modules_package is not None:
            archives.append(await apt.download(modules_package, work / "kernel-modules-package"))
        say(f"unpacking {package}")
        tree = work / "kernel-tree"
        for archive in archives:
            await process.run(["dpkg-deb", "-x", archive, tree], timeout_seconds=_UNPACK_SECONDS)
        query = await process.run(["dpkg-deb", "-f", archives[0], "Version"])
        image, modules = _only(tree, "boot/vmlinuz-*"), _only(tree, "lib/modules/*", "usr/lib/modules/*")
        staging = self._staging()
        modules.rename(staging / "modules")
        return await self._publish(staging, image, version=query.stdout.decode().strip(), origin=package)

    async def _choose_package(self, distribution: Distribution) -> str:
        architecture = self._context.architecture
        for attempt in range(2):
            names = await self._context.apt.search("^linux-image-")
            package = host.newest_kernel(names, distribution, architecture)
            if package is not None:
                return package
            if attempt == 0:
                await self._context.apt.update()
        raise SetupFailed(
            f"the package sources of {distribution.label} hold no guest kernel for {architecture}; "
            "add its updates and security sources to apt, or set guest.kernel_path"
        )

    def _staging(self) -> Path:
        staging = self._context.work / "kernel"
        staging.mkdir()
        return staging

    async def _publish(self, staging: Path, image: Path, *, version: str, origin: str) -> str:
        target = staging / "vmlinux"
        await kernel.convert(self._context.pool, image, target, self._context.architecture)
        target.chmod(0o644)
        size = target.stat().st_size
        manifest = KernelManifest(
            version=version,
            architecture=self._context.architecture,
            origin=origin,
            inputs=self._inputs(),
            size_bytes=size,
        )
        provision.publish_kernel(self._context.home, staging, manifest)
        return f"{origin} {version}, {format_bytes(size)}"

    def _inputs(self) -> str:
        """Return what decides which kernel is wanted; a newer package is looked for only when asked (`--refresh`)."""
        source = self._context.guest.kernel_path
        if source is not None:
            facts = _stat_facts(source), str(self._context.guest.kernel_modules_path)
        else:
            distribution = self._context.distribution
            facts = (distribution.kernel_image if distribution else "unknown", str(self._context.architecture))
        return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def _stat_facts(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return f"{path} absent"
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _only(tree: Path, *patterns: str) -> Path:
    found = [path for pattern in patterns for path in tree.glob(pattern)]
    if not found:
        raise SetupFailed(f"the kernel package holds no {patterns[0]}")
    return found[0]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
