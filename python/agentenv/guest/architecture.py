"""Processor architectures that guests can have, and what each authority calls them."""

import platform
from enum import StrEnum

from agentenv.guest.errors import ArchitectureUnsupported


class Architecture(StrEnum):
    """A processor architecture, by the name that `uname -m` gives."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"

    @property
    def debian_name(self) -> str:
        """The name in packages of Debian and Ubuntu."""
        return {Architecture.X86_64: "amd64", Architecture.AARCH64: "arm64"}[self]

    @property
    def elf_machine(self) -> int:
        """The number in the header of an ELF file."""
        return {Architecture.X86_64: 62, Architecture.AARCH64: 183}[self]


def host_architecture() -> Architecture:
    """Return the architecture of this machine, which is also that of its guests."""
    machine = platform.machine()
    try:
        return Architecture(machine)
    except ValueError as error:
        raise ArchitectureUnsupported(f"this machine is {machine}; guests run on x86_64 and aarch64 only") from error
