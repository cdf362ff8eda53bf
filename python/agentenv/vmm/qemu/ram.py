"""Where a guest's memory lies in the address space of its monitor."""

import re

from agentenv.base.process import ProcessIdentity
from agentenv.vmm.errors import CaptureFailed
from agentenv.vmm.memory import GuestMemory
from agentenv.vmm.qemu.architecture import Architecture
from agentenv.vmm.qmp import QmpClient

_ANSWER = re.compile(r"Host virtual address for 0x[0-9a-f]+ \(ram\) is 0x([0-9a-f]{1,16})\s*")
# The guest's first address that is memory. What lies behind a hole in the guest's addresses follows without one here.
_FIRST_ADDRESS = {Architecture.X86_64: 0, Architecture.AARCH64: 0x4000_0000}


async def locate(
    control: QmpClient, process: ProcessIdentity, architecture: Architecture, size_bytes: int
) -> GuestMemory:
    """Ask the monitor. What it answers proves nothing: whoever reads there checks what kind of memory it is."""
    question: dict[str, object] = {"command-line": f"gpa2hva {_FIRST_ADDRESS[architecture]:#x}"}
    return GuestMemory(process, parse_address(await control.execute("human-monitor-command", question)), size_bytes)


def parse_address(answer: object) -> int:
    """Return the address in the monitor's answer. Raises `CaptureFailed` when it says something else."""
    match = _ANSWER.fullmatch(answer) if isinstance(answer, str) else None
    if match is None:
        raise CaptureFailed(f"the monitor does not say where the memory of its guest is: {str(answer)[:200]!r}")
    return int(match[1], 16)
