"""`clone_pss`: memory of the last of 1, 8 and 16 clones of one snapshot, against what it wrote and what QEMU takes."""

import asyncio
import re
from dataclasses import dataclass, replace
from pathlib import Path

from agentenv.base.units import KIB, MIB
from agentenv.vmm.base import Machine, RestoreSource
from bench.measure import Measurement, compare
from bench.node import BenchServer
from bench.obedient import MEMORY_MIB, Obedient
from support.captures import History, make_image
from support.laboratory import UID

_COUNTS = (1, 8, 16)
_SETTLED_SECONDS = 2
_FIELD = re.compile(r"^(Pss|Anonymous|Size): +(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Footprint:
    """MiB of one clone: its share of everything, what it wrote of its guest's memory, its monitor without that."""

    share: float
    written: float
    monitor: float


async def measure(server: BenchServer) -> list[Measurement]:
    """Restore clones one after the other, let them run, and read the kernel's account of the newest."""
    rows = []
    async with Obedient.opened(server) as obedient:
        history, image = await _prepare(obedient)
        clones: list[Machine] = []
        for number in range(1, max(_COUNTS) + 1):
            clones.append(await _clone(obedient, history, image, number))
            if number in _COUNTS:
                await asyncio.sleep(_SETTLED_SECONDS)
                found = [_read(clone) for clone in clones]
                conditions = f"{obedient.conditions}, {number} clones; floor: pages written + QEMU without the guest"
                ours, floor = [one.share for one in found], [one.written + one.monitor for one in found]
                name = "clone_pss" if number == max(_COUNTS) else f"clone_pss_{number}"
                rows.append(compare(name, "MiB", ours, floor, conditions))
        for clone in clones:
            await clone.kill()
    return rows


async def _prepare(obedient: Obedient) -> tuple[History, Path]:
    async with obedient.booted(obedient.driver) as (machine, panel):
        await panel.change(64)
        history = History(machine, obedient.directory)
        await history.capture()
    return history, make_image(history.layers, obedient.directory / "image")


async def _clone(obedient: Obedient, history: History, image: Path, number: int) -> Machine:
    spec = obedient.describe()
    source = RestoreSource(history.device_state, image, obedient.driver.facts_for(spec))
    directory = obedient.laboratory.machines / f"clone{number}"
    return await obedient.driver.restore(replace(spec, directory=directory, uid=UID + number), source)


def _read(machine: Machine) -> _Footprint:
    share = written = guest_share = 0
    for mapping in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", _smaps(machine), flags=re.MULTILINE):
        fields = {name: int(value) for name, value in _FIELD.findall(mapping)}
        share += fields.get("Pss", 0)
        if fields.get("Size") == MEMORY_MIB * KIB:
            guest_share += fields["Pss"]
            written += fields["Anonymous"]
    scale = MIB / KIB
    return _Footprint(share / scale, written / scale, (share - guest_share) / scale)


def _smaps(machine: Machine) -> str:
    return Path(f"/proc/{machine.handle.process.pid}/smaps").read_text()
