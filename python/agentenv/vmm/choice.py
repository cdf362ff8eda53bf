"""Chooses the driver and the accelerator: the first one under which a guest kernel really boots on this host."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentenv.base import aio, log
from agentenv.base.clock import Clock, SystemClock
from agentenv.vmm.base import Accelerator
from agentenv.vmm.errors import NoAccelerator
from agentenv.vmm.qemu import kvm, library
from agentenv.vmm.qemu.binary import QemuBinary, find_qemu
from agentenv.vmm.qemu.driver import QemuDriver
from agentenv.vmm.qemu.host import host_facts
from agentenv.vmm.qemu.processes import find_orphans
from agentenv.vmm.settings import AcceleratorChoice, PreloadChoice, VmmSettings
from agentenv.vmm.trial import find_fault
from agentenv.vmm.verdicts import Verdict, VerdictFile, compute_key

_log = log.get("vmm")


class HasKernel(Protocol):
    """What we must know of the files that guests boot from."""

    @property
    def kernel(self) -> Path:
        """The guest kernel."""
        ...


async def choose_driver(
    settings: VmmSettings, home: Path, boot_files: HasKernel, supervisor: aio.Supervisor
) -> QemuDriver:
    """Return the best driver for this host, by what is remembered in `home` or else by trying."""
    selector = Selector(settings=settings, kernel=boot_files.kernel, directory=home / "vmm", supervisor=supervisor)
    return (await selector.select()).driver


@dataclass(frozen=True, slots=True)
class Selection:
    """The driver for this host, and why each better one was passed over."""

    driver: QemuDriver
    rejected: tuple[Verdict, ...]


class Selector:
    """Tries accelerators, best first, and remembers what came of it in `<directory>/verdicts.json`.

    `directory` is its own; users without privileges must be able to get through to it, and to read `kernel`.
    """

    def __init__(
        self,
        *,
        settings: VmmSettings,
        kernel: Path,
        directory: Path,
        supervisor: aio.Supervisor,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._kernel = kernel
        self._directory = directory
        self._supervisor = supervisor
        self._clock = clock or SystemClock()

    async def select(self, *, fresh: bool = False) -> Selection:
        """Return the best driver; `fresh` tries again what is remembered.

        Raises `NoAccelerator` with every reason when no guest runs in any way that the settings allow.
        """
        binary = await find_qemu(self._settings.qemu_binary)
        rejected: list[Verdict] = []
        verdicts = await self._open_verdicts(binary)
        for accelerator in _candidates(self._settings.accelerator):
            verdict = None if fresh else verdicts.find(accelerator)
            if verdict is None:
                verdict = await self._try(binary, accelerator)
                verdicts.remember(verdict)
            if verdict.fault is None:
                preload = await self._find_preload(binary)
                return Selection(self._driver(binary, accelerator, preload), tuple(rejected))
            rejected.append(verdict)
        reasons = "; ".join(f"{verdict.accelerator}: {verdict.fault}" for verdict in rejected)
        raise NoAccelerator(f"no guest starts on this host ({reasons})")

    async def _open_verdicts(self, binary: QemuBinary) -> VerdictFile:
        if not self._kernel.is_file():
            raise NoAccelerator(f"there is no guest kernel at {self._kernel} to try with; run `aenv setup`")
        monitor = f"{binary.path} {binary.version_text}"
        return VerdictFile(
            self._directory / "verdicts.json", await asyncio.to_thread(compute_key, monitor, self._kernel)
        )

    async def _try(self, binary: QemuBinary, accelerator: Accelerator) -> Verdict:
        obstacle = kvm.find_obstacle() if accelerator is Accelerator.KVM else None
        begin = self._clock.monotonic()
        fault = obstacle or await self._find_fault(binary, accelerator)
        if fault is not None and obstacle is None and accelerator is Accelerator.KVM:
            fault = f"/dev/kvm ({kvm.modules()}): {fault}"
        took_ms = round((self._clock.monotonic() - begin) * 1000)
        _log.info("accelerator_tried", accelerator=accelerator.value, fault=fault, took_ms=took_ms)
        return Verdict(accelerator, fault)

    async def _find_fault(self, binary: QemuBinary, accelerator: Accelerator) -> str | None:
        directory = self._directory / f"trial-{accelerator}"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._directory.chmod(0o711)
        for leftover in find_orphans(self._directory):
            leftover.kill()
        try:
            return await find_fault(
                self._driver(binary, accelerator),
                kernel=self._kernel,
                directory=directory,
                silence_seconds=self._settings.probe_silence_seconds,
                limit_seconds=self._settings.probe_timeout_seconds,
                clock=self._clock,
            )
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    async def _find_preload(self, binary: QemuBinary) -> Path | None:
        match self._settings.qemu_preload:
            case PreloadChoice.AUTO:
                return await library.provide(self._directory, binary)
            case PreloadChoice.OFF:
                return None

    def _driver(self, binary: QemuBinary, accelerator: Accelerator, preload: Path | None = None) -> QemuDriver:
        facts = host_facts(binary, accelerator, self._settings, preload)
        return QemuDriver(facts, self._settings, self._supervisor, self._clock)


def _candidates(choice: AcceleratorChoice) -> tuple[Accelerator, ...]:
    match choice:
        case AcceleratorChoice.AUTO:
            return (Accelerator.KVM, Accelerator.TCG)
        case AcceleratorChoice.KVM:
            return (Accelerator.KVM,)
        case AcceleratorChoice.TCG:
            return (Accelerator.TCG,)
