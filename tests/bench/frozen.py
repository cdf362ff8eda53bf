"""`frozen_10mb`, `frozen_100mb`, `frozen_400mb`, `second_snapshot_bytes`: what captures cost the guest, by its own
heartbeat, and how much they write. The floor is one write of the same bytes to a file."""

import os
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.units import MIB
from agentenv.vmm.base import CapturedMemory
from agentenv.vmm.qemu.driver import QemuDriver
from bench.measure import Measurement, compare
from bench.node import BenchServer
from bench.obedient import Obedient
from support.captures import History, nothing
from support.panel import Panel, Witness

_TURNS = 5
_SECOND_MIB = 10


@dataclass(frozen=True, slots=True)
class _Sample:
    stood_still_ms: float
    written_bytes: int
    floor_ms: float


def of(mib: int) -> Callable[[BenchServer], Awaitable[list[Measurement]]]:
    """Return the bench of captures after so much has changed."""

    async def measure(server: BenchServer) -> list[Measurement]:
        async with Obedient.opened(server) as obedient:
            live = await _measure(obedient, obedient.driver, mib)
            plain = await _measure(obedient, obedient.plain, mib)
            conditions = f"{obedient.conditions}; by the guest's heartbeat; copied"
        return [
            _row(f"frozen_{mib}mb", live, f"{conditions} after the frozen moment"),
            _row(f"frozen_{mib}mb_plain", plain, f"{conditions} in the frozen moment"),
        ]

    return measure


async def measure_second(server: BenchServer) -> list[Measurement]:
    """What captures after the first one write, against what changed."""
    async with Obedient.opened(server) as obedient:
        samples = await _measure(obedient, obedient.driver, _SECOND_MIB)
        written = [sample.written_bytes / MIB for sample in samples]
        floor = [float(_SECOND_MIB)] * len(written)
        return [compare("second_snapshot_bytes", "MiB", written, floor, obedient.conditions)]


def _row(name: str, samples: list[_Sample], conditions: str) -> Measurement:
    stood_still = [sample.stood_still_ms for sample in samples]
    return compare(name, "ms", stood_still, [sample.floor_ms for sample in samples], conditions)


async def _measure(obedient: Obedient, driver: QemuDriver, mib: int) -> list[_Sample]:
    directory = obedient.directory / "captures"
    directory.mkdir()
    async with obedient.booted(driver) as (machine, panel):
        history = History(machine, directory)
        await history.capture()
        samples = [await _sample(history, panel, mib) for _ in range(_TURNS)]
    shutil.rmtree(directory)
    return samples


async def _sample(history: History, panel: Panel, mib: int) -> _Sample:
    await panel.change(mib)
    target = history.target()
    with Witness(panel) as witness:
        capture = await history.machine.capture(target, while_stopped=nothing)
    captured: CapturedMemory = await capture.finish()
    history.layers.append(target.memory_layer)
    floor_ms = _write_once(target.memory_layer)
    return _Sample(witness.longest_ms, captured.data_bytes, floor_ms)


def _write_once(layer: Path) -> float:
    content = layer.read_bytes()
    path = layer.with_name("floor")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    begin = time.perf_counter()
    os.write(descriptor, content)
    took_ms = (time.perf_counter() - begin) * 1000
    os.close(descriptor)
    path.unlink()
    return took_ms
