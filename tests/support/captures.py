"""Captures of real machines, and the machines that go on from them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import agentenv_core as core
from agentenv.vmm.base import CapturedMemory, CaptureTarget, Machine, MachineSpec, RestoreSource
from agentenv.vmm.qemu.driver import QemuDriver
from support.laboratory import Laboratory, wait_until

# Whole lines only: the last one may be on its way.
_TURN = re.compile(r"^turn (\d+) (\w+)\n", re.MULTILINE)


async def nothing() -> None:
    """Do nothing while a machine stands still."""


@dataclass
class History:
    """A machine with its captures, in one directory: `layers` are those of the memory, the lowest first."""

    machine: Machine
    directory: Path
    layers: list[Path] = field(default_factory=list)

    def target(self, directory: Path | None = None) -> CaptureTarget:
        """Return where the next capture goes."""
        place = directory or self.directory
        number = len(self.layers)
        return CaptureTarget(place / f"devices{number}", place / f"memory{number}", tuple(self.layers) or None)

    async def capture(self) -> CapturedMemory:
        """Take a capture and finish it."""
        target = self.target()
        capture = await self.machine.capture(target, while_stopped=nothing)
        captured = await capture.finish()
        self.layers.append(target.memory_layer)
        return captured

    @property
    def device_state(self) -> Path:
        """The state of the devices at the newest capture."""
        return self.directory / f"devices{len(self.layers) - 1}"


def make_image(layers: Iterable[Path], image: Path) -> Path:
    """Write the content of memory layers as a plain file, which stands for a memory image of the block daemon."""
    core.cat([*layers], image)
    image.chmod(0o666)
    return image


async def go_on(
    driver: QemuDriver, spec: MachineSpec, history: History, image: Path, laboratory: Laboratory, *, uid: int
) -> Machine:
    """Restore the newest capture as a machine of its own."""
    name = f"clone{uid}"
    clone = replace(spec, name=name, directory=laboratory.machines / name, uid=uid)
    return await driver.restore(clone, RestoreSource(history.device_state, image, driver.facts_for(spec)))


def read_turns(machine: Machine) -> list[int]:
    """Return the turns that the guest reports. Fails when one found its memory damaged."""
    found = _TURN.findall(machine.console_tail())
    assert {word for _, word in found} <= {"whole"}, machine.console_tail()
    return [int(number) for number, _ in found]


async def wait_for_turns(machine: Machine, count: int = 5) -> list[int]:
    """Return the turns that the guest reports as soon as there are so many new ones."""
    wanted = len(read_turns(machine)) + count
    await wait_until(machine.console_tail, lambda _: len(read_turns(machine)) >= wanted)
    return read_turns(machine)
