"""What is read from the host, and what is put around a monitor."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agentenv.base.process import identify
from agentenv.vmm.base import DiskAttachment, MachineSpec
from agentenv.vmm.errors import MachineRefused, NoAccelerator
from agentenv.vmm.qemu.binary import find_qemu
from agentenv.vmm.qemu.confinement import confine
from agentenv.vmm.qemu.processes import is_monitor_of
from agentenv.vmm.qemu.specification import check
from agentenv.vmm.qemu.tsc import parse_tsc_khz

CPUINFO = "processor\t: 0\ncpu MHz\t\t: 3391.201\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\nbogomips\t: 5192.26\n"


@pytest.mark.parametrize(
    "text, khz",
    [
        (CPUINFO, 2596130),
        (CPUINFO.replace(" constant_tsc", ""), None),
        (CPUINFO.replace("5192.26", "0.50"), None),
        (CPUINFO.replace("bogomips", "BogoMIPS"), None),
        ("", None),
    ],
)
def test_tsc_frequency_is_told_only_where_it_can_be_trusted(text: str, khz: int | None) -> None:
    assert parse_tsc_khz(text) == khz


def test_monitor_enters_its_namespace_before_it_gives_up_its_privileges() -> None:
    words = confine(["qemu", "-x"], namespace="aenv-7", uid=70007, oom_score_adjustment=300, groups=(105, 106))

    assert words.index("nsenter") < words.index("setpriv") < words.index("qemu")
    assert {"--adjust=300", "--core=0", "--net=/run/netns/aenv-7", "--reuid=70007", "--regid=70007"} <= set(words)
    assert {"--groups=105,106", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"} <= set(words)
    assert words[-2:] == ["qemu", "-x"]


def test_monitor_without_network_or_groups_gets_none() -> None:
    words = confine(["qemu"], namespace=None, uid=1, oom_score_adjustment=0)

    assert "nsenter" not in words
    assert "--clear-groups" in words


@pytest.fixture
def spec(tmp_path: Path) -> MachineSpec:
    for name in ("kernel", "initramfs"):
        (tmp_path / name).touch()
    return MachineSpec(
        name="i1",
        directory=Path("/run/aenv/i1"),
        kernel=tmp_path / "kernel",
        initramfs=tmp_path / "initramfs",
        command_line="",
        vcpus=1,
        memory_mib=64,
        disks=(),
        network=None,
        uid=1000,
    )


def test_sound_machine_is_accepted(spec: MachineSpec) -> None:
    check(spec)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"vcpus": 0}, "1 to 64 virtual CPUs, not 0"),
        ({"vcpus": 65}, "not 65"),
        ({"memory_mib": 63}, "at least 64 MiB"),
        ({"uid": 0}, "not user id 0"),
        ({"command_line": "x" * 1800}, "at most 1792 bytes"),
        ({"directory": Path("/" + "x" * 120)}, "too long a path for sockets"),
        ({"kernel": Path("/absent/kernel")}, "/absent/kernel is missing"),
        ({"disks": (DiskAttachment(Path("/absent/disk")),)}, "/absent/disk is missing"),
        ({"disks": (DiskAttachment(Path("/x")),) * 9}, "at most 8 disks"),
    ],
)
def test_machine_that_cannot_work_is_refused_with_the_reason(
    spec: MachineSpec, change: dict[str, object], reason: str
) -> None:
    with pytest.raises(MachineRefused, match=reason):
        check(replace(spec, **change))  # type: ignore[arg-type]


def test_process_that_only_names_a_machines_directory_is_no_monitor() -> None:
    ours = identify(os.getpid())
    assert ours is not None

    assert not is_monitor_of(ours, Path("/run/aenv"))


async def test_missing_program_is_named_with_the_next_step() -> None:
    with pytest.raises(NoAccelerator, match="qemu-absent is not installed; run `aenv setup`"):
        await find_qemu("qemu-absent")


@pytest.mark.parametrize(
    "words, reason",
    [
        ("echo QEMU emulator version 5.1.0", "7.2 is the oldest"),
        ("echo hello", "is not QEMU"),
        ("exit 1", "does not run"),
    ],
)
async def test_program_that_is_no_qemu_of_ours_is_refused(tmp_path: Path, words: str, reason: str) -> None:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\n{words}\n")
    program.chmod(0o755)

    with pytest.raises(NoAccelerator, match=reason):
        await find_qemu(str(program))
