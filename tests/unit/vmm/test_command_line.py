"""The words that start QEMU, per architecture and accelerator."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentenv.vmm.base import Accelerator, DiskAttachment, MachineSpec, TapAttachment
from agentenv.vmm.qemu.architecture import Architecture
from agentenv.vmm.qemu.command_line import HostFacts, build, kernel_command_line, state_descriptor

TCG = HostFacts(
    program=Path("/usr/bin/qemu-system-x86_64"),
    version=(7, 2, 22),
    architecture=Architecture.X86_64,
    accelerator=Accelerator.TCG,
    tsc_khz=2596130,
    translation_cache_mib=128,
    processor="any",
)
KVM = replace(TCG, accelerator=Accelerator.KVM, tsc_khz=None)
ARM = replace(TCG, program=Path("/usr/bin/qemu-system-aarch64"), architecture=Architecture.AARCH64, tsc_khz=None)
SPEC = MachineSpec(
    name="i123",
    directory=Path("/home/machines/i123"),
    kernel=Path("/home/vmlinux"),
    initramfs=Path("/home/initramfs"),
    command_line="aenv.hostname=i123",
    vcpus=2,
    memory_mib=512,
    disks=(
        DiskAttachment(Path("/disks/a,b/root"), is_scratch=True),
        DiskAttachment(Path("/disks/tools.raw"), read_only=True),
    ),
    network=TapAttachment("aenv-1", "tap0", "02:fc:00:00:00:05"),
    uid=70001,
)


def _values(words: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(words) if name == option]


def _objects(words: list[str], option: str) -> list[dict[str, object]]:
    return [json.loads(value) for value in _values(words, option)]


@pytest.mark.parametrize(
    "host, machine, accelerator, cpu",
    [
        (TCG, "microvm,acpi=on,pcie=off,usb=off,rtc=on", "tcg,thread=multi,tb-size=128", "max,-erms,-fsrm"),
        (KVM, "microvm,acpi=on,pcie=off,usb=off,rtc=on", "kvm", "host"),
        (ARM, "virt,gic-version=3,usb=off,its=off", "tcg,thread=multi,tb-size=128", "max,pauth-impdef=on"),
        (replace(ARM, accelerator=Accelerator.KVM), "virt,gic-version=host,usb=off,its=off", "kvm", "host"),
    ],
)
def test_board_fits_architecture_and_accelerator(host: HostFacts, machine: str, accelerator: str, cpu: str) -> None:
    words = build(host, SPEC)

    assert words[0] == str(host.program)
    assert _values(words, "-machine") == [f"{machine},memory-backend=ram"]
    assert _values(words, "-accel") == [accelerator]
    assert _values(words, "-cpu") == [cpu]
    assert _values(words, "-m") == ["512M"]
    assert _values(words, "-smp") == ["cpus=2,sockets=1,cores=2,threads=1"]


@pytest.mark.parametrize(
    "host, expected",
    [
        (TCG, {"console=ttyS0", "panic=-1", "reboot=t", "noreplace-smp", "tsc_early_khz=2596130", "tsc=reliable"}),
        (KVM, {"console=ttyS0", "panic=-1", "reboot=t"}),
        (ARM, {"console=ttyAMA0", "panic=-1"}),
    ],
)
def test_kernel_gets_what_its_machine_needs(host: HostFacts, expected: set[str]) -> None:
    quick_boot = {"quiet", "cryptomgr.notests", "initcall_blacklist=jent_mod_init"}

    assert set(kernel_command_line(host, "its own").split()) == expected | quick_boot | {"its", "own"}
    assert kernel_command_line(host, "its own").endswith(" its own")


def test_devices_stand_in_one_order_and_leave_the_buses_to_it() -> None:
    devices = _objects(build(TCG, SPEC), "-device")

    assert [device["id"] for device in devices] == ["disk0", "disk1", "net0", "rng0", "balloon0"]
    assert not any("bus" in device for device in devices)
    assert devices[2]["mac"] == "02:fc:00:00:00:05"


def test_disks_have_named_nodes_and_only_scratch_ones_skip_flushes() -> None:
    nodes = {node["node-name"]: node for node in _objects(build(TCG, SPEC), "-blockdev")}

    assert list(nodes) == ["disk0-file", "disk0", "disk1-file", "disk1"]
    assert nodes["disk0-file"]["filename"] == "/disks/a,b/root"
    assert (nodes["disk0"]["driver"], nodes["disk0"]["read-only"]) == ("raw", False)
    assert (nodes["disk1"]["driver"], nodes["disk1"]["read-only"]) == ("raw", True)
    assert nodes["disk0"]["cache"] == {"direct": False, "no-flush": True}
    assert nodes["disk1"]["cache"] == {"direct": False, "no-flush": False}


def test_block_devices_are_opened_as_such_and_past_the_page_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_block_device", lambda path: path == SPEC.disks[0].path)
    nodes = {node["node-name"]: node for node in _objects(build(TCG, SPEC), "-blockdev")}

    assert (nodes["disk0-file"]["driver"], nodes["disk1-file"]["driver"]) == ("host_device", "file")
    assert nodes["disk0-file"]["cache"] == nodes["disk0"]["cache"] == {"direct": True, "no-flush": True}


def test_machine_without_network_has_no_link() -> None:
    words = build(TCG, replace(SPEC, network=None))

    assert _values(words, "-netdev") == []
    assert "net0" not in {device["id"] for device in _objects(words, "-device")}


def test_monitor_is_fenced_in_by_its_own_words() -> None:
    words = build(TCG, SPEC)

    assert {"-nodefaults", "-no-user-config", "-no-reboot"} <= set(words)
    assert _values(words, "-sandbox") == ["on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]


@pytest.mark.parametrize("version, reconnect", [((7, 2, 0), "reconnect=1"), ((9, 2, 0), "reconnect-ms=1000")])
def test_sockets_are_in_the_machines_directory(version: tuple[int, int, int], reconnect: str) -> None:
    awkward = replace(SPEC, directory=Path("/home/a,b"))

    assert _values(build(replace(TCG, version=version), awkward), "-chardev") == [
        "socket,id=control,path=/home/a,,b/monitor/qmp.sock,server=on,wait=off",
        f"socket,id=console,path=/home/a,,b/console.sock,{reconnect}",
    ]


def test_machine_that_goes_on_is_the_one_that_booted_over_a_private_image() -> None:
    booted, restored = build(TCG, SPEC), build(TCG, SPEC, Path("/images/m,1"))

    for option in ("-device", "-blockdev", "-cpu", "-smp", "-m", "-netdev"):
        assert _values(restored, option) == _values(booted, option)
    (memory,) = [entry for entry in _objects(restored, "-object") if entry["id"] == "ram"]
    assert memory["qom-type"] == "memory-backend-file"
    assert (memory["mem-path"], memory["share"], memory["size"]) == ("/images/m,1", False, 512 * 2**20)
    assert _values(restored, "-incoming") == ["defer"]
    assert _values(restored, "-kernel") == []


def test_library_takes_over_what_only_its_own_filter_can_allow() -> None:
    preloaded = build(replace(TCG, preload=Path("/home/preload.so")), SPEC)

    assert preloaded[:3] == [
        "env",
        "LD_PRELOAD=/home/preload.so",
        "AENV_PRELOAD_SOCKET=/home/machines/i123/monitor/preload.sock",
    ]
    assert "spawn=allow" in _values(preloaded, "-sandbox")[0]
    assert "spawn=deny" in _values(build(TCG, SPEC), "-sandbox")[0]


def test_state_comes_behind_the_tap() -> None:
    assert state_descriptor(SPEC) == 4
    assert state_descriptor(replace(SPEC, network=None)) == 3
