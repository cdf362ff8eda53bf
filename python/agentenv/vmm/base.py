"""The seam of `vmm`: what a machine is made of, and what a driver promises."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from agentenv.base.process import ProcessIdentity


class Accelerator(StrEnum):
    """What executes the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"


class Capability(StrEnum):
    """What a driver can do beyond starting and ending a machine."""

    PAUSE = "pause"
    LIVE_CAPTURE = "live_capture"
    RESTORE_FROM_FILE = "restore_from_file"
    DIFF_SNAPSHOT = "diff_snapshot"
    BALLOON_STATISTICS = "balloon_statistics"
    HUGE_PAGES = "huge_pages"
    DEVICE_HOTPLUG = "device_hotplug"


class EndCause(StrEnum):
    """Why a machine is no more."""

    KILLED_BY_US = "killed_by_us"
    GUEST_SHUTDOWN = "guest_shutdown"
    GUEST_REBOOT = "guest_reboot"
    GUEST_PANIC = "guest_panic"
    VMM_KILLED = "vmm_killed"
    VMM_FAILED = "vmm_failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MachineEnd:
    """The end of a machine: its cause, and one sentence with the facts (signal, exit code, last console lines)."""

    cause: EndCause
    detail: str


@dataclass(frozen=True, slots=True)
class DiskAttachment:
    """A raw disk to attach as the next virtio block device; the first one is the guest's /dev/vda.

    It is a file or a block device of the host.

    A scratch disk is worth nothing once the host went down: the guest's flushes need not reach the host's disk.
    """

    path: Path
    read_only: bool = False
    is_scratch: bool = False


@dataclass(frozen=True, slots=True)
class TapAttachment:
    """A tap device in a network namespace, to attach as the guest's eth0."""

    namespace: str
    tap: str
    mac: str


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """Everything a driver needs to start a machine.

    `directory` is the machine's own: sockets, console log and state of the monitor live there and nowhere else.
    `command_line` is the guest's part of the kernel command line; the driver adds what its machine needs.
    The monitor runs as user and group `uid`, which nothing else on this host has, with no privilege left.
    """

    name: str
    directory: Path
    kernel: Path
    initramfs: Path
    command_line: str
    vcpus: int
    memory_mib: int
    disks: tuple[DiskAttachment, ...]
    network: TapAttachment | None
    uid: int


@dataclass(frozen=True, slots=True)
class MachineHandle:
    """What must be remembered of a machine so that a later process can adopt it. Serialisable."""

    driver: str
    directory: Path
    process: ProcessIdentity


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the saved state of a machine needs of whoever restores it. Serialisable; `Driver.check` judges it.

    `layout` is a digest of everything that the state of the devices depends on: machine options, memory size, number
    of processors, and the devices in their order.
    """

    driver: str
    version: str
    accelerator: Accelerator
    architecture: str
    cpu: str
    layout: str


@dataclass(frozen=True, slots=True)
class RestoreSource:
    """A saved machine.

    `memory_image` is a file of the size of the memory that stays unchanged while any machine lives that was restored
    from it; all of them share its pages. The monitor's user may open it, for writing too, but never changes it.
    """

    device_state: Path
    memory_image: Path
    facts: MachineFacts


@dataclass(frozen=True, slots=True)
class CaptureTarget:
    """Where a capture goes. Neither file exists yet; both belong to the caller once the capture is finished.

    `below` are the layer files of the newest memory snapshot of this machine, the lowest first: those that it was
    restored from, plus one for each capture since. The new layer holds what differs from them. None: it stands alone.
    """

    device_state: Path
    memory_layer: Path
    below: tuple[Path, ...] | None


@dataclass(frozen=True, slots=True)
class CapturedMemory:
    """A finished memory layer: durable, under a digest `sha256:<hex>` of the file.

    `data_bytes` are bytes of memory in it, zero pages not counted; `frozen_ms` is how long the guest stood still.
    """

    memory_layer: Path
    size_bytes: int
    digest: str
    data_bytes: int
    frozen_ms: float
    facts: MachineFacts


class MemoryCapture(Protocol):
    """What of a capture follows the frozen moment. One of `finish` and `abandon` must be called, once."""

    async def finish(self) -> CapturedMemory:
        """Return when memory and device state are durable.

        Raises `CaptureFailed` when that cannot be had (disk full, monitor killed); no file is left then, the machine
        is none the worse for it, and the next capture still finds everything that changed. The same holds when the
        caller is cancelled.
        """
        ...

    async def abandon(self) -> None:
        """Give the capture up and remove its files. Can be called again, and after a `finish` that failed."""
        ...


class Machine(Protocol):
    """A machine that was started or adopted."""

    @property
    def handle(self) -> MachineHandle:
        """What to write down to adopt this machine later."""
        ...

    @property
    def ended(self) -> asyncio.Future[MachineEnd]:
        """Resolves at once when the machine ends, whoever ended it. Await it through `asyncio.shield`."""
        ...

    async def pause(self) -> None:
        """Stop the virtual CPUs."""
        ...

    async def resume(self) -> None:
        """Let the virtual CPUs run again."""
        ...

    async def capture(
        self, target: CaptureTarget, *, while_stopped: Callable[[], Awaitable[None]], stay_stopped: bool = False
    ) -> MemoryCapture:
        """Take the state of the machine at one moment.

        The virtual CPUs stop and all requests to disks are complete; the state of the devices is saved; `while_stopped`
        runs (disks are frozen there, it must be quick); the memory is taken. Then they run again, unless
        `stay_stopped`: `resume` lets them. One capture of a machine at a time: the one before is finished or abandoned.

        Raises `CaptureFailed`, or what `while_stopped` raised. The machine then runs on, and no file is left; the same
        holds when the caller is cancelled.
        """
        ...

    async def kill(self) -> MachineEnd:
        """End the machine and wait until its process is gone. Can be called again, and on a dead machine."""
        ...

    async def detach(self) -> None:
        """Let go of the machine without ending it, so that another process can adopt it."""
        ...

    def console_tail(self, limit_bytes: int = 8192) -> str:
        """Return the end of what the guest wrote to its console, made printable."""
        ...


class Driver(Protocol):
    """Starts machines of one kind.

    Promises: `boot` and `restore` leave a running machine or nothing at all (no process, socket or file outside
    `spec.directory`); the monitor inherits no descriptor of ours and outlives this process.
    """

    @property
    def name(self) -> str:
        """The driver's name in settings and records: `qemu`."""
        ...

    @property
    def accelerator(self) -> Accelerator:
        """What executes the guests of this driver."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this driver can do here."""
        ...

    async def boot(self, spec: MachineSpec) -> Machine:
        """Start a machine from its kernel. Returns when the monitor runs; the guest may still be booting."""
        ...

    def facts_for(self, spec: MachineSpec) -> MachineFacts:
        """Return what a machine started here by this specification is; touches nothing."""
        ...

    def check(self, spec: MachineSpec, saved: MachineFacts) -> None:
        """Raise `SnapshotUnfit` with every reason why a state with these facts cannot go on here as `spec`."""
        ...

    async def restore(self, spec: MachineSpec, source: RestoreSource) -> Machine:
        """Start a machine from a saved state. Returns when its virtual CPUs run.

        `spec` is the one that the saved machine was started with, but for name, directory, disk paths, namespace and
        user. Raises `SnapshotUnfit` before anything is touched, `BootFailed` when the state could not be loaded.
        """
        ...

    async def adopt(self, handle: MachineHandle) -> Machine | None:
        """Take over a machine that an earlier process started; None when it has ended."""
        ...
