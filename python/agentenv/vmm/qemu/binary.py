"""Which QEMU program runs guests here, and what its version changes. Owns no process."""

import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import process
from agentenv.base.errors import AgentEnvError
from agentenv.vmm.errors import NoAccelerator
from agentenv.vmm.qemu.architecture import Architecture

_VERSION = re.compile(rb"version (\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class QemuBinary:
    """A QEMU program that answered when asked for its version."""

    path: Path
    version: tuple[int, int, int]
    architecture: Architecture

    @property
    def version_text(self) -> str:
        """The version as people write it: `7.2.22`."""
        return ".".join(map(str, self.version))


async def find_qemu(configured: str = "") -> QemuBinary:
    """Return the configured QEMU, or the one for this machine's own architecture.

    Raises `NoAccelerator` when there is none, and says what to install.
    """
    machine = platform.machine()
    try:
        architecture = Architecture(machine)
    except ValueError as error:
        raise NoAccelerator(f"guests need an x86_64 or aarch64 host, and this one is {machine}") from error
    name = configured or f"qemu-system-{architecture}"
    found = shutil.which(name)
    if found is None:
        raise NoAccelerator(f"{name} is not installed; run `aenv setup`, or name a QEMU in vmm.qemu_binary")
    try:
        answer = await process.run((found, "--version"), timeout_seconds=10)
    except AgentEnvError as error:
        raise NoAccelerator(f"{found} does not run: {error.message}") from error
    match = _VERSION.search(answer.stdout)
    if match is None:
        raise NoAccelerator(f"{found} is not QEMU: it did not answer with a version")
    major, minor, patch = (int(part or 0) for part in match.groups())
    if (major, minor) < (7, 2):
        raise NoAccelerator(f"{found} is QEMU {major}.{minor}, and 7.2 is the oldest that works")
    return QemuBinary(Path(found), (major, minor, patch), architecture)
