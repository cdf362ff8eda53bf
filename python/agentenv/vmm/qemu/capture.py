"""Takes the state of a running machine: the moment in which it stands still.

Invariant: whatever fails on the way, the virtual CPUs run again, no file is left, and the next capture finds every
change.
"""

import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import aio, log, metrics
from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.base.process import ProcessIdentity
from agentenv.vmm.base import CaptureTarget
from agentenv.vmm.errors import CaptureFailed
from agentenv.vmm.memory import GuestMemory, MemoryReader, NewLayer
from agentenv.vmm.qemu import device_state
from agentenv.vmm.qemu.architecture import Architecture
from agentenv.vmm.qemu.finishing import QemuCapture, discard
from agentenv.vmm.qemu.lineage import LineageFile
from agentenv.vmm.qemu.plan import CapturePlan, make_plan
from agentenv.vmm.qemu.preload import Preload
from agentenv.vmm.qemu.ram import locate
from agentenv.vmm.qemu.taking import TakenMemory, take
from agentenv.vmm.qmp import QmpClient

_log = log.get("vmm")
_frozen = metrics.histogram("aenv_vmm_capture_frozen_seconds", "How long a capture kept its guest from running.", ())


@dataclass(frozen=True, slots=True)
class Subject:
    """The machine that is captured. Without `preload` it stands still until its memory is copied."""

    directory: Path
    process: ProcessIdentity
    control: QmpClient
    architecture: Architecture
    record: LineageFile
    preload: Preload | None


@dataclass(frozen=True, slots=True)
class _Preparation:
    """What is known before the machine stops."""

    memory: GuestMemory
    plan: CapturePlan
    new: NewLayer
    is_tracked: bool


class Capturer:
    """Captures one machine, one capture at a time."""

    def __init__(self, subject: Subject, reader: MemoryReader, clock: Clock) -> None:
        self._subject = subject
        self._reader = reader
        self._clock = clock
        self._is_busy = False

    @property
    def makes_copies(self) -> bool:
        """Return whether the monitor can make copies of itself."""
        return self._subject.preload is not None

    async def capture(
        self, target: CaptureTarget, *, while_stopped: Callable[[], Awaitable[None]], stay_stopped: bool
    ) -> QemuCapture:
        """Implement `Machine.capture`."""
        if self._is_busy:
            raise CaptureFailed(f"another capture of the machine in {self._subject.directory} is not finished")
        self._is_busy = True
        try:
            with _explained():
                preparation = await self._prepare(target)
            return await self._stop_and_take(target, preparation, while_stopped, stay_stopped=stay_stopped)
        except BaseException:
            self._is_busy = False
            raise

    async def _prepare(self, target: CaptureTarget) -> _Preparation:
        subject, lineage = self._subject, self._subject.record.lineage
        for path in (target.device_state, target.memory_layer):
            if path.exists():
                raise CaptureFailed(f"{path} is there already")
        memory = await locate(subject.control, subject.process, subject.architecture, lineage.memory_bytes)
        top = await self._reader.identify_top(target.below) if target.below else None
        plan = make_plan(lineage, has_below=bool(target.below), top=top)
        new = NewLayer(target.memory_layer, str(uuid.uuid4()), top, target.below or None, compares=plan.compares)
        is_tracked = await self._track(memory)
        # From here on the tracks are read. A capture that does not come to its end leaves none behind, and the next
        # one compares instead.
        subject.record.lose_track()
        return _Preparation(memory, plan, new, is_tracked)

    async def _track(self, memory: GuestMemory) -> bool:
        if self._subject.preload is None:
            return False
        try:
            await self._subject.preload.track(memory)
        except CaptureFailed as error:
            _log.warning("writes_not_tracked", directory=str(self._subject.directory), reason=error.message)
            return False
        return True

    async def _stop_and_take(
        self,
        target: CaptureTarget,
        preparation: _Preparation,
        while_stopped: Callable[[], Awaitable[None]],
        *,
        stay_stopped: bool,
    ) -> QemuCapture:
        taken: TakenMemory | None = None
        begin = self._clock.monotonic()
        try:
            async with self._stopped(stay_stopped=stay_stopped):
                with _explained():
                    await self._save_devices(target.device_state)
                await while_stopped()
                with _explained():
                    taken = await self._take(preparation)
        except BaseException:
            await aio.finish(discard(target, taken))
            raise
        frozen_seconds = self._clock.monotonic() - begin
        _frozen.observe(frozen_seconds)
        return QemuCapture(
            target,
            taken,
            record=self._subject.record,
            reader=self._reader,
            is_tracked=preparation.is_tracked,
            frozen_ms=frozen_seconds * 1000,
            when_done=self._become_idle,
        )

    async def _take(self, preparation: _Preparation) -> TakenMemory:
        return await take(
            self._reader,
            preparation.memory,
            preparation.plan,
            preparation.new,
            preload=self._subject.preload,
            is_tracked=preparation.is_tracked,
        )

    @contextlib.asynccontextmanager
    async def _stopped(self, *, stay_stopped: bool) -> AsyncIterator[None]:
        """Stop the virtual CPUs; let them run again afterwards, in any case after a failure."""
        try:
            with _explained():
                await self._subject.control.execute("stop")
            yield
            if not stay_stopped:
                with _explained():
                    await self._subject.control.execute("cont")
        except BaseException:
            await aio.finish(self._go_on())
            raise

    async def _go_on(self) -> None:
        try:
            await self._subject.control.execute("cont")
        except AgentEnvError as error:
            # Its monitor has ended, or will be found not to answer by whoever asks next.
            _log.warning("machine_not_resumed", directory=str(self._subject.directory), reason=error.message)

    async def _save_devices(self, target: Path) -> None:
        directory = self._subject.directory
        device_state.discard(directory)
        # A live state would make the monitor give up its disks.
        words: dict[str, object] = {"filename": str(directory / device_state.SAVED_STATE), "live": False}
        try:
            await self._subject.control.execute("xen-save-devices-state", words)
            device_state.take(directory, target)
        finally:
            device_state.discard(directory)

    def _become_idle(self) -> None:
        self._is_busy = False


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn what our own steps raise into `CaptureFailed`."""
    try:
        yield
    except CaptureFailed:
        raise
    except AgentEnvError as error:
        raise CaptureFailed(f"the state of the machine could not be taken: {error.message}") from error
    except OSError as error:
        raise CaptureFailed(f"the state of the machine could not be kept: {error}") from error
