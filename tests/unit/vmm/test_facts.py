"""What of a machine its saved state depends on, and why a state is turned away."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentenv.vmm.base import Accelerator, DiskAttachment, MachineFacts, MachineSpec, TapAttachment
from agentenv.vmm.errors import SnapshotUnfit
from agentenv.vmm.qemu import facts
from agentenv.vmm.qemu.architecture import Architecture
from agentenv.vmm.qemu.command_line import HostFacts
from agentenv.vmm.qemu.processor import parse_processor

HOST = HostFacts(Path("/q"), (7, 2, 22), Architecture.X86_64, Accelerator.TCG, 2596130, 128, "EPYC")
SPEC = MachineSpec(
    name="i1",
    directory=Path("/run/i1"),
    kernel=Path("/k"),
    initramfs=Path("/i"),
    command_line="a=b",
    vcpus=1,
    memory_mib=512,
    disks=(DiskAttachment(Path("/d")),),
    network=TapAttachment("aenv-1", "tap0", "02:fc:00:00:00:05"),
    uid=7,
)


def _describe(host: HostFacts = HOST, spec: MachineSpec = SPEC) -> MachineFacts:
    return facts.describe("qemu", host, spec)


def test_what_differs_between_clones_does_not_change_the_facts() -> None:
    clone = replace(
        SPEC,
        name="i2",
        directory=Path("/run/i2"),
        disks=(DiskAttachment(Path("/e"), is_scratch=True),),
        network=TapAttachment("aenv-2", "tap0", "02:fc:00:00:00:05"),
        uid=8,
    )

    assert _describe(spec=clone) == _describe()


@pytest.mark.parametrize("change", [{"vcpus": 2}, {"memory_mib": 1024}, {"disks": ()}, {"network": None}])
def test_another_layout_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SnapshotUnfit, match="devices, memory size or number of processors"):
        facts.check(_describe(spec=replace(SPEC, **change)), _describe())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "saved, reason",
    [
        (replace(HOST, version=(10, 0, 2)), "version of QEMU is 10.0 and not 7.2"),
        (replace(HOST, accelerator=Accelerator.KVM, tsc_khz=None), "accelerator is kvm and not tcg"),
        (replace(HOST, tsc_khz=2_600_000), "processor is max.*@2600000kHz and not max.*@2596130kHz"),
        (replace(HOST, tsc_khz=None), "processor is max.* and not max.*@2596130kHz"),
    ],
)
def test_a_state_of_another_host_is_refused_with_its_reason(saved: HostFacts, reason: str) -> None:
    with pytest.raises(SnapshotUnfit, match=reason):
        facts.check(_describe(saved), _describe())


def test_a_stable_update_and_a_counter_measured_anew_are_no_obstacle() -> None:
    facts.check(_describe(replace(HOST, version=(7, 2, 19), tsc_khz=2596098)), _describe())


def test_every_reason_is_told_at_once() -> None:
    saved = replace(_describe(), driver="firecracker", architecture="aarch64")

    with pytest.raises(SnapshotUnfit, match="driver is firecracker and not qemu; its architecture is aarch64"):
        facts.check(saved, _describe())


def test_processors_differ_by_what_they_can_do() -> None:
    first = parse_processor("model name\t: EPYC\nflags\t\t: fpu tsc avx\n")

    assert first == parse_processor("model name : EPYC\nflags : avx fpu tsc\n")
    assert first.startswith("EPYC ")
    assert first != parse_processor("model name : EPYC\nflags : fpu tsc\n")
    assert parse_processor("").startswith("unknown ")
