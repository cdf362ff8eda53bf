"""A trial believes in an accelerator only when a guest kernel came through, and remembers what it found."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from agentenv.base import aio
from agentenv.base.process import ProcessIdentity
from agentenv.vmm.base import Accelerator, Capability, Driver, EndCause, MachineEnd, MachineHandle, MachineSpec
from agentenv.vmm.errors import BootFailed
from agentenv.vmm.trial import find_fault
from agentenv.vmm.verdicts import Verdict, VerdictFile, compute_key
from support.clock import FakeClock, settle

PANIC = MachineEnd(EndCause.GUEST_PANIC, "the guest gave up: panic")


@dataclass
class ScriptedMachine:
    """A machine that has said what it says, and ends when it is killed if not before."""

    console: str
    end: MachineEnd | None
    kills: int = 0
    ended: asyncio.Future[MachineEnd] = field(init=False)

    def __post_init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        if self.end is not None:
            self.ended.set_result(self.end)

    @property
    def handle(self) -> MachineHandle:
        return MachineHandle("scripted", Path("/"), ProcessIdentity(1, 1))

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def detach(self) -> None: ...

    async def kill(self) -> MachineEnd:
        self.kills += 1
        return PANIC

    def console_tail(self, limit_bytes: int = 8192) -> str:
        return self.console[-limit_bytes:]


@dataclass
class ScriptedDriver:
    """Boots one machine, or fails to; a trial asks no more of a driver."""

    machine: ScriptedMachine | None = None
    specs: list[MachineSpec] = field(default_factory=list)
    name: str = "scripted"
    accelerator: Accelerator = Accelerator.KVM
    capabilities: frozenset[Capability] = frozenset()

    async def boot(self, spec: MachineSpec) -> ScriptedMachine:
        self.specs.append(spec)
        if self.machine is None:
            raise BootFailed("no permission")
        return self.machine

    async def adopt(self, handle: MachineHandle) -> None:
        del handle


async def _find(driver: ScriptedDriver, directory: Path, *, silence: float = 60, limit: float = 60) -> str | None:
    return await find_fault(
        cast("Driver", driver),
        kernel=Path("/kernel"),
        directory=directory,
        silence_seconds=silence,
        limit_seconds=limit,
        clock=FakeClock(),
    )


async def test_kernel_that_misses_its_root_has_come_through(tmp_path: Path) -> None:
    machine = ScriptedMachine("Linux version\nVFS: Unable to mount root fs on unknown-block(0,0)\n", PANIC)
    driver = ScriptedDriver(machine)

    assert await _find(driver, tmp_path / "trial") is None
    assert machine.kills == 1
    assert driver.specs[0].uid > 0
    assert driver.specs[0].initramfs.read_bytes().startswith(b"070701")
    assert len(driver.specs[0].initramfs.read_bytes()) % 512 == 0


async def test_monitor_that_does_not_start_is_the_fault(tmp_path: Path) -> None:
    assert await _find(ScriptedDriver(), tmp_path) == "no permission"


async def test_silent_kernel_is_given_up_early(tmp_path: Path) -> None:
    machine = ScriptedMachine("", None)

    assert "did not say a word" in (await _find(ScriptedDriver(machine), tmp_path, silence=0.01) or "")
    assert machine.kills == 1


async def test_kernel_that_gets_stuck_is_given_up(tmp_path: Path) -> None:
    machine = ScriptedMachine("Linux version\n", None)

    assert "did not come through" in (await _find(ScriptedDriver(machine), tmp_path, limit=0.01) or "")
    assert machine.kills == 1


async def test_kernel_that_ends_otherwise_is_the_fault(tmp_path: Path) -> None:
    machine = ScriptedMachine("Linux version\nKernel panic: no CPU\n", PANIC)

    assert "the guest gave up: panic" in (await _find(ScriptedDriver(machine), tmp_path) or "")


async def test_cancelled_trial_leaves_no_machine(tmp_path: Path) -> None:
    machine = ScriptedMachine("", None)
    supervisor = aio.Supervisor()
    trying = supervisor.start("trial", _find(ScriptedDriver(machine), tmp_path))
    await settle()
    trying.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await trying

    assert machine.kills == 1


def test_verdicts_are_remembered_for_their_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    VerdictFile(path, "one").remember(Verdict(Accelerator.KVM, "silent"))
    VerdictFile(path, "one").remember(Verdict(Accelerator.TCG, None))

    assert VerdictFile(path, "one").find(Accelerator.KVM) == Verdict(Accelerator.KVM, "silent")
    assert VerdictFile(path, "one").find(Accelerator.TCG) == Verdict(Accelerator.TCG, None)
    assert VerdictFile(path, "two").find(Accelerator.TCG) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"key": "one"}', b'{"key": "one", "faults": 3}'])
def test_damaged_memory_is_no_memory(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "verdicts.json"
    path.write_bytes(content)

    assert VerdictFile(path, "one").find(Accelerator.KVM) is None
    VerdictFile(path, "one").remember(Verdict(Accelerator.KVM, None))
    assert VerdictFile(path, "one").find(Accelerator.KVM) == Verdict(Accelerator.KVM, None)


def test_key_changes_with_kernel_and_monitor(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_bytes(b"one")
    first = compute_key("qemu 7.2.0", kernel)
    again = compute_key("qemu 7.2.0", kernel)
    other_monitor = compute_key("qemu 7.2.1", kernel)
    kernel.write_bytes(b"two")

    assert again == first
    assert len({first, other_monitor, compute_key("qemu 7.2.0", kernel)}) == 3
