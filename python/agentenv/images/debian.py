"""Builds the default base image: a minimal Debian or Ubuntu with a user who may become root.

Takes everything from the host's package sources, and leaves none of the host's settings in the image.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from agentenv.base import process
from agentenv.base.aio import BlockingPool
from agentenv.base.errors import AgentEnvError
from agentenv.images.errors import BuildFailed

USER = "user"
USER_ID = 1000
# Raise it when the recipe below changes, so that existing images are built anew.
RECIPE_VERSION = 1
_BUILD_TIMEOUT_SECONDS = 1800
_HOSTNAME = "sandbox"
# What guests never read costs disk and time in every image; licences stay.
_LEFT_OUT = ("path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*")
_KEPT = "path-include=/usr/share/doc/*/copyright"
_BUILD_CONFIGURATION = "etc/apt/apt.conf.d/00aenv-build"


@dataclass(frozen=True, slots=True)
class PackageSource:
    """One line of a package source list. `keyring` signs it; empty where apt's own trusted keys do."""

    uri: str
    suite: str
    components: tuple[str, ...]
    keyring: str

    def line(self) -> str:
        """Return the source in apt's one-line form."""
        option = f"[signed-by={self.keyring}] " if self.keyring else ""
        return f"deb {option}{self.uri} {self.suite} {' '.join(self.components)}"

    def without_secrets(self) -> Self:
        """Return the source as guests may know it: a name and password in its address are this host's."""
        parts = urlsplit(self.uri)
        return replace(self, uri=parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())


@dataclass(frozen=True, slots=True)
class Recipe:
    """What goes into an image. `apt_configuration` is what apt needs here (proxy, certificates) and nowhere else."""

    suite: str
    sources: tuple[PackageSource, ...]
    packages: tuple[str, ...]
    apt_configuration: str


async def build_root(recipe: Recipe, work: Path, pool: BlockingPool) -> Path:
    """Build a root file system in the empty directory `work` and return its directory. Raises `BuildFailed`."""
    root = work / "root"
    configuration = work / "apt.conf"
    configuration.write_text(recipe.apt_configuration)
    try:
        await process.run(
            [*containment(), *_command(recipe, root, configuration)],
            timeout_seconds=_BUILD_TIMEOUT_SECONDS,
            environment=build_environment(work),
        )
    except AgentEnvError as error:
        raise BuildFailed(f"the base image could not be built: {error.message}") from error
    await pool.run(furnish, root, recipe.sources)
    return root


def containment() -> Sequence[str]:
    """Return a prefix for a command that ends everything under it, with its mounts, when we end: also by SIGKILL."""
    return (
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--ipc", "--"),
    )


def _command(recipe: Recipe, root: Path, configuration: Path) -> list[str]:
    target = f"$1/{_BUILD_CONFIGURATION}"
    return [
        *("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet"),
        f"--include={','.join(recipe.packages)}",
        *(f"--dpkgopt={option}" for option in (*_LEFT_OUT, _KEPT)),
        f'--setup-hook=mkdir -p "$1/etc/apt/apt.conf.d" && cp "{configuration}" "{target}"',
        f'--customize-hook=chroot "$1" useradd --create-home --uid {USER_ID} --shell /bin/bash {USER}',
        f'--customize-hook=rm "{target}"',
        recipe.suite,
        str(root),
        *(source.line() for source in recipe.sources),
    ]


def build_environment(work: Path) -> dict[str, str]:
    """Return the environment of the build: of this host's, only what leads to the package sources."""
    passed = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return passed | {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(work),
        "HOME": "/root",
    }


def furnish(root: Path, sources: Sequence[PackageSource]) -> None:
    """Write what every sandbox finds in the image, and take out what the builder and the host left."""
    _write(root / f"etc/sudoers.d/{USER}", f"{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440)
    _write(root / "etc/default/locale", "LANG=C.UTF-8\n")
    _write(root / "etc/hostname", f"{_HOSTNAME}\n")
    _write(root / "etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {_HOSTNAME}\n::1 localhost ip6-localhost\n")
    # Empty means "make one at first boot": an identity in the image would be every sandbox's.
    _write(root / "etc/machine-id", "", 0o444)
    _write(root / "etc/apt/sources.list", "".join(f"{source.without_secrets().line()}\n" for source in sources))
    # The daemon writes it at boot; what the builder left is the host's.
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    for leftover in ("var/lib/apt/lists", "var/cache/apt", "var/cache/debconf", "var/log", "tmp", "run"):
        _empty(root / leftover)
    (root / "var/cache/ldconfig/aux-cache").unlink(missing_ok=True)


def _write(path: Path, content: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A link in the image must not lead the write to the host's file of that name.
    path.unlink(missing_ok=True)
    path.write_text(content)
    path.chmod(mode)


def _empty(directory: Path) -> None:
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
