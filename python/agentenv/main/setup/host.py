"""What is known of host distributions: their packages for us, their kernels for guests. A table and its lookup."""

import os
import platform
import re
import shutil
from dataclasses import dataclass

from agentenv.guest.architecture import Architecture
from agentenv.main.setup.errors import HostUnknown

# Commands that the server or the setup runs, and the package that has each: the same names on Debian and Ubuntu.
COMMANDS = {
    "dpkg-deb": "dpkg",
    "ip": "iproute2",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "prlimit": "util-linux",
    "setpriv": "util-linux",
    "umount": "mount",
    "unshare": "util-linux",
    "zstd": "zstd",
}
# The search path of an ordinary user's shell leaves these out.
SYSTEM_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_MONITORS = {
    Architecture.X86_64: ("qemu-system-x86_64", "qemu-system-x86"),
    Architecture.AARCH64: ("qemu-system-aarch64", "qemu-system-arm"),
}


@dataclass(frozen=True, slots=True)
class Distribution:
    """A release that setup knows how to work with.

    `kernel_image` matches the names of its guest kernel packages. `kernel_modules` makes from such a name the
    package with its modules, where that is another one.
    """

    label: str
    codename: str
    origin: str
    keyring: str
    components: frozenset[str]
    kernel_image: str
    kernel_modules: tuple[str, str] | None


_DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UBUNTU_KEYRING = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_CLOUD_KERNEL = r"linux-image-6\.12\.[0-9]+[a-z0-9+~.]*(-[0-9]+)?-cloud-{architecture}(-unsigned)?"
_GENERIC_KERNEL = r"linux-image-(unsigned-)?6\.[0-9]+\.[0-9]+-[0-9]+-generic"


def _debian(version: str, codename: str) -> Distribution:
    return Distribution(
        label=f"Debian {version}",
        codename=codename,
        origin="Debian",
        keyring=_DEBIAN_KEYRING,
        components=frozenset({"main"}),
        kernel_image=_CLOUD_KERNEL,
        kernel_modules=None,
    )


_KNOWN = {
    ("debian", "12"): _debian("12", "bookworm"),
    ("debian", "13"): _debian("13", "trixie"),
    ("ubuntu", "24.04"): Distribution(
        label="Ubuntu 24.04",
        codename="noble",
        origin="Ubuntu",
        keyring=_UBUNTU_KEYRING,
        components=frozenset({"main", "universe"}),
        kernel_image=_GENERIC_KERNEL,
        kernel_modules=(r"linux-image-(unsigned-)?", "linux-modules-"),
    ),
}


def read_release() -> dict[str, str]:
    """Return the fields of os-release; empty where a system has none."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def find_distribution(release: dict[str, str]) -> Distribution:
    """Return what is known of the release that os-release describes. Raises `HostUnknown`."""
    known = _KNOWN.get((release.get("ID", ""), release.get("VERSION_ID", "")))
    if known is None:
        name = release.get("PRETTY_NAME", "this system")
        labels = ", ".join(distribution.label for distribution in _KNOWN.values())
        raise HostUnknown(f"{name} is not among the systems that setup knows ({labels})")
    return known


def required_commands(architecture: Architecture) -> dict[str, str]:
    """Return the commands that must be there, each with the package that has it."""
    command, package = _MONITORS[architecture]
    return COMMANDS | {command: package}


def missing_commands(architecture: Architecture) -> dict[str, str]:
    """Return those required commands that are not there, with their packages."""
    path = ":".join([os.environ.get("PATH", os.defpath), *SYSTEM_PATH])
    required = required_commands(architecture)
    return {command: package for command, package in required.items() if shutil.which(command, path=path) is None}


def newest_kernel(names: list[str], distribution: Distribution, architecture: Architecture) -> str | None:
    """Return the newest of the packages in `names` that is a guest kernel; of a signed and an unsigned one the latter.

    The two differ in a signature that nothing here checks, and the unsigned one is published first.
    """
    pattern = distribution.kernel_image.format(architecture=re.escape(architecture.debian_name))
    matching = [name for name in names if re.fullmatch(pattern, name)]
    return max(matching, key=lambda name: (_version_key(name), "unsigned" in name), default=None)


def modules_package(kernel: str, distribution: Distribution) -> str | None:
    """Return the package with the modules of the kernel package `kernel`, when they are not in the same one."""
    if distribution.kernel_modules is None:
        return None
    pattern, replacement = distribution.kernel_modules
    return re.sub(f"^{pattern}", replacement, kernel)


def _version_key(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", name.removesuffix("-unsigned"))]
