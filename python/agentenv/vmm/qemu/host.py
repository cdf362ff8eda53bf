"""From a QEMU program and an accelerator to the facts that its command line needs. Looks at the host once."""

from pathlib import Path

from agentenv.vmm.base import Accelerator
from agentenv.vmm.qemu.architecture import Architecture
from agentenv.vmm.qemu.binary import QemuBinary
from agentenv.vmm.qemu.command_line import HostFacts
from agentenv.vmm.qemu.processor import read_processor
from agentenv.vmm.qemu.tsc import read_tsc_khz
from agentenv.vmm.settings import VmmSettings


def host_facts(
    binary: QemuBinary, accelerator: Accelerator, settings: VmmSettings, preload: Path | None = None
) -> HostFacts:
    """Return what a driver of this host must know."""
    is_emulated_x86 = binary.architecture is Architecture.X86_64 and accelerator is Accelerator.TCG
    return HostFacts(
        program=binary.path,
        version=binary.version,
        architecture=binary.architecture,
        accelerator=accelerator,
        tsc_khz=read_tsc_khz() if is_emulated_x86 else None,
        translation_cache_mib=settings.translation_cache_mib,
        processor=read_processor(),
        preload=preload,
    )
