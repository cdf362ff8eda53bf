"""Fakes of the mechanisms under a node, with named places to stop at and to fail at, and what they gave out."""

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import repeat
from pathlib import Path

from agentenv.base.errors import Exhausted
from agentenv.base.ids import SandboxId, TemplateId
from agentenv.base.process import ProcessIdentity, identify
from agentenv.blocks.base import Disk, FileLayer, FrozenLayer, LayerSource, SealedLayer, Stack
from agentenv.guest.base import GuestAddress, GuestMetrics, GuestSetup
from agentenv.images.base import Image
from agentenv.images.errors import TemplateNotFound
from agentenv.network.base import EgressPolicy, GuestIdentity, Slot
from agentenv.vmm.base import (
    Accelerator,
    Capability,
    CaptureTarget,
    EndCause,
    MachineEnd,
    MachineFacts,
    MachineHandle,
    MachineSpec,
    RestoreSource,
)
from agentenv.vmm.errors import SnapshotUnfit
from support import fake_capture
from support.stops import Stops


@dataclass
class FakeNetwork:
    """Implements `Network`."""

    stops: Stops
    size: int = 1000
    held: set[int] = field(default_factory=set)

    async def start(self, keep: frozenset[int]) -> None:
        self.held = set(keep)

    async def acquire(self, policy: EgressPolicy) -> Slot:
        await self.stops.pass_by("network.acquire")
        index = next((index for index in range(self.size) if index not in self.held), None)
        if index is None:
            raise Exhausted("no slot is free")
        self.held.add(index)
        return self._slot(index)

    async def adopt(self, index: int, policy: EgressPolicy) -> Slot:
        await self.stops.pass_by("network.adopt")
        self.held.add(index)
        return self._slot(index)

    async def release(self, slot: Slot) -> None:
        await self.stops.pass_by("network.release")
        self.held.remove(slot.index)

    async def stop(self, *, keep: frozenset[int] = frozenset()) -> None:
        self.held &= keep

    @staticmethod
    def _slot(index: int) -> Slot:
        return Slot(
            index=index,
            namespace=f"fake-{index}",
            tap="tap0",
            owner=os.getuid(),
            address=IPv4Address("127.0.1.0") + index,
            guest=GuestIdentity(),
        )


@dataclass
class FakeBlocks:
    """Implements `BlockStore`. What a disk holds is a number; a layer is a file that says it."""

    stops: Stops
    directory: Path = Path("/nonexistent")
    disks: dict[str, Disk] = field(default_factory=dict)
    contents: dict[str, int] = field(default_factory=dict)
    stacks: dict[str, list[LayerSource]] = field(default_factory=dict)
    images: dict[str, Path] = field(default_factory=dict)
    mapped: set[str] = field(default_factory=set)
    losses: dict[str, asyncio.Future[str]] = field(default_factory=dict)

    async def wait_lost(self, sandbox_id: SandboxId) -> str:
        loss = self.losses.setdefault(sandbox_id, asyncio.get_running_loop().create_future())
        return await asyncio.shield(loss)

    async def create(self, sandbox_id: SandboxId, base: Stack, *, owner: int, size_bytes: int | None = None) -> Disk:
        await self.stops.pass_by("blocks.create")
        assert sandbox_id not in self.disks, "a disk of this name is there already"
        self.disks[sandbox_id] = Disk(Path(f"/fake/{sandbox_id}"), base.size_bytes)
        self.stacks[sandbox_id] = list(base.layers)
        top = base.layers[-1]
        assert isinstance(top, FileLayer)
        self.contents[sandbox_id] = json.loads(top.path.read_bytes())["disk"] if top.digest else 0
        return self.disks[sandbox_id]

    async def find(self, sandbox_id: SandboxId) -> Disk | None:
        return self.disks.get(sandbox_id)

    async def remove(self, sandbox_id: SandboxId) -> None:
        await self.stops.pass_by("blocks.remove")
        self.disks.pop(sandbox_id, None)
        self.stacks.pop(sandbox_id, None)
        self.contents.pop(sandbox_id, None)

    async def collect(self, keep: frozenset[SandboxId]) -> list[str]:
        gone = [name for name in self.disks if name not in keep]
        for name in gone:
            del self.disks[name]
        return [f"disk of {name}" for name in gone]

    async def stack(self, sandbox_id: SandboxId) -> Stack:
        return Stack(tuple(self.stacks[sandbox_id]), self.disks[sandbox_id].size_bytes)

    async def freeze(self, sandbox_id: SandboxId, seal_id: str, into: Path) -> FrozenLayer:
        await self.stops.pass_by("blocks.freeze")
        content = json.dumps({"disk": self.contents[sandbox_id], "seal": seal_id}).encode()
        own = self.directory / f"{sandbox_id}-{seal_id}"
        own.write_bytes(content)
        self.stacks[sandbox_id].append(FileLayer(own, f"sha256:{hashlib.sha256(content).hexdigest()}"))
        return FrozenLayer(sandbox_id, seal_id, into)

    async def sealed(self, frozen: FrozenLayer) -> SealedLayer:
        await self.stops.pass_by("blocks.sealed")
        own = self.directory / f"{frozen.sandbox_id}-{frozen.seal_id}"
        frozen.path.write_bytes(own.read_bytes())
        digest = f"sha256:{hashlib.sha256(own.read_bytes()).hexdigest()}"
        return SealedLayer(frozen.path, own.stat().st_size, digest)

    async def open_memory(self, name: str, stack: Stack) -> Path:
        await self.stops.pass_by("blocks.open_memory")
        top = stack.layers[-1]
        assert isinstance(top, FileLayer)
        return self.images.setdefault(name, top.path)

    async def close_memory(self, name: str) -> bool:
        if name in self.mapped:
            return False
        self.images.pop(name, None)
        return True

    async def memory_images(self) -> list[str]:
        return list(self.images)


class FakeMachine:
    """Implements `Machine`. What its memory holds is a number; `is_stopped` tells whether it stands still."""

    def __init__(self, driver: "FakeDriver", name: str, handle: MachineHandle) -> None:
        self.handle = handle
        self.ended: asyncio.Future[MachineEnd] = asyncio.get_running_loop().create_future()
        self.is_stopped = False
        self.memory = 0
        self.generation = 0
        self._driver = driver
        self._name = name

    async def pause(self) -> None:
        await self._driver.stops.pass_by("machine.pause")
        self.is_stopped = True

    async def resume(self) -> None:
        await self._driver.stops.pass_by("machine.resume")
        self.is_stopped = False

    async def capture(
        self, target: CaptureTarget, *, while_stopped: Callable[[], Awaitable[None]], stay_stopped: bool = False
    ) -> fake_capture.FakeCapture:
        await self._driver.stops.pass_by("machine.capture")
        capture = await fake_capture.capture(target, while_stopped, self._driver.stops, self.memory)
        self.is_stopped = stay_stopped
        return capture

    def die(self, cause: EndCause) -> None:
        if self._driver.running.get(self._name) is self:
            del self._driver.running[self._name]
        self._driver.forget(self.handle.process.pid)
        if not self.ended.done():
            self.ended.set_result(MachineEnd(cause, f"the test ended it: {cause}"))

    async def kill(self) -> MachineEnd:
        await self._driver.stops.pass_by("machine.kill")
        self.die(EndCause.KILLED_BY_US)
        return self.ended.result()

    async def detach(self) -> None:
        await self._driver.stops.pass_by("machine.detach")
        self._driver.detached.append(self._name)

    def console_tail(self, limit_bytes: int = 8192) -> str:
        return "the fake console"


@dataclass
class FakeDriver:
    """Implements `Driver`; every machine's process is this test's own, so that it is alive for adoption."""

    stops: Stops
    running: dict[str, FakeMachine] = field(default_factory=dict)
    detached: list[str] = field(default_factory=list)
    specs: list[MachineSpec] = field(default_factory=list)
    unrecognised: set[str] = field(default_factory=set)
    restored: list[str] = field(default_factory=list)
    is_other: bool = False
    forget: Callable[[int], None] = lambda pid: None
    identities: Iterator[ProcessIdentity] = field(default_factory=lambda: repeat(_this_process()))
    name: str = "fake"
    accelerator: Accelerator = Accelerator.TCG
    capabilities: frozenset[Capability] = frozenset()

    async def boot(self, spec: MachineSpec) -> FakeMachine:
        await self.stops.pass_by("driver.boot")
        self.specs.append(spec)
        process = next(self.identities)
        machine = FakeMachine(self, spec.name, MachineHandle(self.name, spec.directory, process))
        self.running[spec.name] = machine
        return machine

    def facts_for(self, spec: MachineSpec) -> MachineFacts:
        return fake_capture.FACTS

    def check(self, spec: MachineSpec, saved: MachineFacts) -> None:
        if self.is_other:
            raise SnapshotUnfit("the saved machine cannot go on here: the test says so")

    async def restore(self, spec: MachineSpec, source: RestoreSource) -> FakeMachine:
        await self.stops.pass_by("driver.restore")
        machine = await self.boot(spec)
        machine.memory = json.loads(source.memory_image.read_bytes())["memory"]
        self.restored.append(spec.name)
        return machine

    async def adopt(self, handle: MachineHandle) -> FakeMachine | None:
        await self.stops.pass_by("driver.adopt")
        if not handle.process.is_alive() or handle.directory.name in self.unrecognised:
            return None
        machine = FakeMachine(self, handle.directory.name, handle)
        if (earlier := self.running.get(handle.directory.name)) is not None:
            machine.memory, machine.is_stopped = earlier.memory, earlier.is_stopped
        self.running[handle.directory.name] = machine
        return machine


@dataclass
class FakeGuest:
    """Stands for `GuestClient`: what the launcher asks of guests."""

    stops: Stops
    initialised: list[GuestSetup] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)

    async def wait_ready(self, address: GuestAddress) -> None:
        await self.stops.pass_by("guest.ready")

    async def wait_reachable(self, address: GuestAddress) -> None:
        await self.stops.pass_by("guest.ready")

    async def initialise(self, address: GuestAddress, setup: GuestSetup, *, current_token: str | None) -> None:
        await self.stops.pass_by("guest.init")
        self.initialised.append(setup)
        self.tokens.append(current_token)

    async def freeze_disk(
        self, address: GuestAddress, token: str, *, hold_seconds: float, timeout_seconds: float
    ) -> None:
        await self.stops.pass_by("guest.freeze")

    async def thaw_disk(self, address: GuestAddress, token: str) -> None:
        await self.stops.pass_by("guest.thaw")

    async def metrics(self, address: GuestAddress, token: str) -> GuestMetrics:
        await self.stops.pass_by("guest.metrics")
        return GuestMetrics(1, 2, 0.5, 100, 50, 10, 1000, 100)


class FakeCatalogue:
    """Implements `Catalogue` with one image."""

    image = Image(
        template_id=TemplateId("tbase"),
        names=("base",),
        disk=Stack((FileLayer(Path("/fake/base.layer")),), 2**32),
        vcpus=2,
        memory_mib=512,
        environment={"FROM_IMAGE": "1"},
        default_user="user",
        default_workdir=None,
    )

    async def resolve(self, reference: str) -> Image:
        if reference.partition(":")[0] not in {"base", "tbase"}:
            raise TemplateNotFound(f"template '{reference}' not found")
        return self.image

    async def list(self) -> list[Image]:
        return [self.image]


def _this_process() -> ProcessIdentity:
    process = identify(os.getpid())
    assert process is not None
    return process


def dead_process() -> ProcessIdentity:
    """Return the identity of a process that has ended."""
    return ProcessIdentity(2**22 - 1, 1)
