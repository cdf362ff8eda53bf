"""Real QEMU machines that do the one thing that a test wants of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from agentenv.base import aio
from agentenv.base.clock import SystemClock
from agentenv.vmm.base import Accelerator, Machine, MachineSpec
from agentenv.vmm.qemu.architecture import Architecture
from agentenv.vmm.qemu.binary import find_qemu
from agentenv.vmm.qemu.command_line import HostFacts
from agentenv.vmm.qemu.driver import QemuDriver
from agentenv.vmm.qemu.host import host_facts
from agentenv.vmm.settings import VmmSettings

# Nobody on the test machine has this user id.
UID = 61234
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Where the machines of a test live, and what they boot."""

    supervisor: aio.Supervisor
    machines: Path
    kernel: Path
    initramfs: Path

    async def driver(self, settings: VmmSettings | None = None, *, preload: Path | None = None) -> QemuDriver:
        """Return a driver that emulates, which works everywhere."""
        wanted = settings or VmmSettings()
        facts = host_facts(await find_qemu(), Accelerator.TCG, wanted, preload)
        return QemuDriver(facts, wanted, self.supervisor)

    def quick_settings(self) -> VmmSettings:
        """Return settings for monitors that are expected not to answer."""
        return VmmSettings(start_timeout_seconds=0.5, command_timeout_seconds=0.3)

    def driver_of(self, program: Path) -> QemuDriver:
        """Return an impatient driver of a program that only claims to be QEMU."""
        facts = HostFacts(program, (7, 2, 0), Architecture.X86_64, Accelerator.TCG, None, 128, "any")
        return QemuDriver(facts, self.quick_settings(), self.supervisor)

    def describe(self, mode: str) -> MachineSpec:
        """Return a small machine whose first process does what `mode` says (test_init.rs)."""
        return MachineSpec(
            name=mode,
            directory=self.machines / f"{mode}{next(_numbers)}",
            kernel=self.kernel,
            initramfs=self.initramfs,
            command_line=f"aenv_test={mode}",
            vcpus=1,
            memory_mib=128,
            disks=(),
            network=None,
            uid=UID,
        )

    async def start(self, mode: str, **changes: object) -> Machine:
        """Boot such a machine."""
        return await (await self.driver()).boot(replace(self.describe(mode), **changes))  # type: ignore[arg-type]


async def wait_for_console(machine: Machine, wanted: str) -> str:
    """Return the end of the console as soon as `wanted` is in it; the test's own time limit bounds the wait."""
    return await wait_until(machine.console_tail, lambda tail: wanted in tail)


async def wait_until(read: Callable[[], str], is_enough: Callable[[str], bool]) -> str:
    """Poll real machines, which send no event for what is waited for here."""
    clock = SystemClock()
    while not is_enough(found := read()):
        await clock.sleep(0.02)
    return found
