"""What a machine of ours is, as far as a saved state cares, and why a state would not go on here. Pure."""

import hashlib
import re

from agentenv.vmm.base import Accelerator, MachineFacts, MachineSpec
from agentenv.vmm.errors import SnapshotUnfit
from agentenv.vmm.qemu.architecture import board
from agentenv.vmm.qemu.command_line import HostFacts, layout

_FREQUENCY = re.compile(r"^(.*)@(\d{1,9})kHz$")
# Kernels measure their counter anew at every start, and do not agree on the last digits.
_FREQUENCY_TOLERANCE = 0.0005


def describe(driver: str, host: HostFacts, spec: MachineSpec) -> MachineFacts:
    """Return the facts of a machine that is started on this host by this specification."""
    return MachineFacts(
        driver=driver,
        version=".".join(map(str, host.version)),
        accelerator=host.accelerator,
        architecture=host.architecture.value,
        cpu=_processor(host),
        layout=f"sha256:{hashlib.sha256(layout(host, spec).encode()).hexdigest()}",
    )


def check(saved: MachineFacts, here: MachineFacts) -> None:
    """Raise `SnapshotUnfit` when a state saved by a machine `saved` cannot be loaded into a machine `here`."""
    pairs = (
        ("driver", saved.driver, here.driver),
        ("accelerator", saved.accelerator.value, here.accelerator.value),
        ("architecture", saved.architecture, here.architecture),
        ("version of QEMU", _branch(saved.version), _branch(here.version)),
    )
    reasons = [f"its {what} is {theirs} and not {ours}" for what, theirs, ours in pairs if theirs != ours]
    if not _is_same_processor(saved.cpu, here.cpu):
        reasons.append(f"its processor is {saved.cpu} and not {here.cpu}")
    if saved.layout != here.layout:
        reasons.append("its devices, memory size or number of processors differ")
    if reasons:
        raise SnapshotUnfit(f"the saved machine cannot go on here: {'; '.join(reasons)}")


def _processor(host: HostFacts) -> str:
    name = host.processor if host.accelerator is Accelerator.KVM else board(host.architecture, host.accelerator).cpu
    # An emulated guest's time stamp counter is that of the host.
    return name if host.tsc_khz is None else f"{name}@{host.tsc_khz}kHz"


def _branch(version: str) -> str:
    """Return the part of a version that decides about the format of states: a stable branch keeps it."""
    return ".".join(version.split(".")[:2])


def _is_same_processor(saved: str, here: str) -> bool:
    theirs, ours = _FREQUENCY.match(saved), _FREQUENCY.match(here)
    if theirs is None or ours is None:
        return saved == here
    is_same_rate = abs(int(theirs[2]) - int(ours[2])) <= int(ours[2]) * _FREQUENCY_TOLERANCE
    return theirs[1] == ours[1] and is_same_rate
