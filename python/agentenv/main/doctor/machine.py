"""Checks of what runs guests: KVM as the host shows it, and the driver and accelerator that a probe really started."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import aio
from agentenv.base.errors import AgentEnvError
from agentenv.guest import provision
from agentenv.main.doctor.check import Check, State
from agentenv.vmm.base import Accelerator, Capability
from agentenv.vmm.choice import Selector
from agentenv.vmm.settings import VmmSettings

_KVM = Path("/dev/kvm")
_ENABLE_KVM = "enable virtualisation in the firmware, or nested virtualisation on the cloud's host, and load the module"
_SLOW = "guests are emulated, which is several times slower: use a machine with KVM where speed matters"


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """What a probe found: by what new guests run, what that can do, and why something better was turned down."""

    driver: str
    accelerator: Accelerator
    capabilities: tuple[Capability, ...]
    turned_down: tuple[str, ...]


ProbeMachine = Callable[[], Awaitable[MachineFinding]]


def make_probe(settings: VmmSettings, home: Path, *, fresh: bool) -> ProbeMachine:
    """Return a probe that tries accelerators with the guest kernel in `home`, or remembers how that went."""

    async def probe() -> MachineFinding:
        supervisor = aio.Supervisor()
        try:
            selector = Selector(
                settings=settings,
                kernel=provision.find_boot_files(home).kernel,
                directory=home / "vmm",
                supervisor=supervisor,
            )
            selection = await selector.select(fresh=fresh)
        finally:
            await supervisor.stop()
        driver = selection.driver
        reasons = tuple(verdict.fault for verdict in selection.rejected if verdict.fault is not None)
        return MachineFinding(driver.name, driver.accelerator, tuple(sorted(driver.capabilities)), reasons)

    return probe


async def examine_machine(probe: ProbeMachine) -> Sequence[Check]:
    """Start a guest, and say by what it ran."""
    try:
        finding = await probe()
    except AgentEnvError as error:
        value, _, remedy = error.message.partition("; ")
        return [_kvm(None), Check("driver", State.MISSING, value, remedy or "see the message")]
    value = f"{finding.driver} with {finding.accelerator}; can {', '.join(finding.capabilities)}"
    if finding.accelerator is Accelerator.KVM:
        return [_kvm(finding), Check("driver", State.OK, value)]
    return [_kvm(finding), Check("driver", State.WARNING, value, _SLOW)]


def _kvm(finding: MachineFinding | None) -> Check:
    if finding is not None and finding.accelerator is Accelerator.KVM:
        return Check("kvm", State.OK, "a guest runs")
    reason = " and ".join(finding.turned_down) if finding is not None else ""
    value, _, remedy = (reason or _visible_reason() or "not tried with a guest").partition("; ")
    return Check("kvm", State.WARNING, value, remedy or _ENABLE_KVM)


def _visible_reason() -> str:
    """Return why KVM cannot work, as far as the host shows it without a guest; empty when nothing speaks against it."""
    if not _KVM.exists():
        return f"there is no {_KVM}"
    try:
        os.close(os.open(_KVM, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{_KVM}: {error.strerror}"
    return ""
