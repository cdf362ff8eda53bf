"""Starts and adopts QEMU machines. Owns the directory of a machine while it starts; decides nothing about sandboxes."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import aio, log
from agentenv.base.clock import Clock, SystemClock
from agentenv.base.process import CommandFailed, ProcessIdentity, reap, spawn_detached
from agentenv.base.units import KIB, MIB
from agentenv.vmm.base import Accelerator, Capability, MachineFacts, MachineHandle, MachineSpec, RestoreSource
from agentenv.vmm.console import ConsoleLog
from agentenv.vmm.errors import BootFailed, CommandRefused, MachineRefused, MonitorLost
from agentenv.vmm.memory import MemoryReader
from agentenv.vmm.qemu import directory, facts, kvm
from agentenv.vmm.qemu.capture import Capturer, Subject
from agentenv.vmm.qemu.command_line import (
    CONSOLE_LOG,
    CONSOLE_SOCKET,
    CONTROL_SOCKET,
    PRELOAD_SOCKET,
    HostFacts,
    build,
    state_descriptor,
)
from agentenv.vmm.qemu.confinement import confine
from agentenv.vmm.qemu.console_socket import ConsoleSocket
from agentenv.vmm.qemu.error_pipe import ErrorPipe
from agentenv.vmm.qemu.going_on import go_on, is_guarded, open_state
from agentenv.vmm.qemu.lineage import Lineage, LineageFile
from agentenv.vmm.qemu.machine import Lines, QemuMachine
from agentenv.vmm.qemu.preload import Preload
from agentenv.vmm.qemu.processes import is_monitor_of
from agentenv.vmm.qemu.specification import check as check_specification
from agentenv.vmm.qemu.tap import open_tap
from agentenv.vmm.qmp import QmpClient
from agentenv.vmm.settings import VmmSettings

_log = log.get("vmm")
_POLL_SECONDS = 0.005
_LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class _Ends:
    """Our ends of a monitor's lines before the control line stands."""

    console: ConsoleLog
    console_socket: ConsoleSocket
    errors: ErrorPipe


class QemuDriver:
    """Implements `vmm.base.Driver` with one QEMU program and one accelerator."""

    def __init__(
        self, host: HostFacts, settings: VmmSettings, supervisor: aio.Supervisor, clock: Clock | None = None
    ) -> None:
        self._host = host
        self._settings = settings
        self._supervisor = supervisor
        self._clock = clock or SystemClock()
        self._reader = MemoryReader(settings.capture_threads)

    @property
    def name(self) -> str:
        """The driver's name in settings and records."""
        return "qemu"

    @property
    def accelerator(self) -> Accelerator:
        """What executes the guests of this driver."""
        return self._host.accelerator

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this driver can do here."""
        always = {Capability.PAUSE, Capability.RESTORE_FROM_FILE, Capability.DIFF_SNAPSHOT}
        return frozenset(always if self._host.preload is None else always | {Capability.LIVE_CAPTURE})

    async def boot(self, spec: MachineSpec) -> QemuMachine:
        """Start a machine from its kernel; returns when the monitor answers.

        Raises `MachineRefused` for what cannot be started, `BootFailed` with the monitor's own words when it did not.
        """
        check_specification(spec)
        begin = self._clock.monotonic()
        machine, _ = await self._start(spec, build(self._host, spec), is_restored=False)
        self._log_start("machine_started", spec, begin)
        return machine

    def facts_for(self, spec: MachineSpec) -> MachineFacts:
        """Return what a machine started here by this specification is."""
        return facts.describe(self.name, self._host, spec)

    def check(self, spec: MachineSpec, saved: MachineFacts) -> None:
        """Raise `SnapshotUnfit` when a state with these facts cannot go on here as `spec`."""
        facts.check(saved, self.facts_for(spec))

    async def restore(self, spec: MachineSpec, source: RestoreSource) -> QemuMachine:
        """Start a machine from a saved state; returns when its virtual CPUs run."""
        self.check(spec, source.facts)
        check_specification(spec)
        if self._host.preload is None and not await asyncio.to_thread(is_guarded, source.memory_image):
            raise MachineRefused(
                f"without the preload library machine {spec.name} could damage the memory image {source.memory_image}"
            )
        begin = self._clock.monotonic()
        state = open_state(spec, source)
        try:
            words = build(self._host, spec, source.memory_image)
            machine, control = await self._start(spec, words, is_restored=True, state=state)
        finally:
            os.close(state)
        await self._go_on(spec, machine, control)
        self._log_start("machine_restored", spec, begin)
        return machine

    async def _go_on(self, spec: MachineSpec, machine: QemuMachine, control: QmpClient) -> None:
        descriptor = state_descriptor(spec)
        try:
            async with asyncio.timeout(self._settings.start_timeout_seconds):
                await go_on(control, machine.handle.process, descriptor, self._clock)
        except (MonitorLost, CommandRefused, TimeoutError) as error:
            end = await aio.finish(machine.kill())
            raise BootFailed(f"machine {spec.name} could not go on with its state: {end.detail}") from error
        except BaseException:
            await aio.finish(machine.kill())
            raise

    async def _start(
        self, spec: MachineSpec, words: list[str], *, is_restored: bool, state: int | None = None
    ) -> tuple[QemuMachine, QmpClient]:
        """Start a monitor and return its machine when it answers; nothing is left of it when it does not."""
        directory.prepare(spec.directory, spec.uid)
        lineage = Lineage(
            self.facts_for(spec), spec.memory_mib * MIB, is_restored, is_preloaded=self._host.preload is not None
        )
        record = LineageFile.create(spec.directory, lineage)
        async with self._open_ends(spec.directory, owner=spec.uid) as ends:
            process = await self._spawn(spec, words, ends, state)
            try:
                control = await self._connect(process, spec.directory)
                self._check_library(spec)
            except MonitorLost as error:
                await aio.finish(_end(process, spec.directory))
                last_words = _last_words(ends.errors)
                raise BootFailed(f"machine {spec.name} could not be started: {error.message}{last_words}") from error
            except BaseException:
                await aio.finish(_end(process, spec.directory))
                raise
            return self._machine(process, spec.directory, ends, control, record), control

    def _check_library(self, spec: MachineSpec) -> None:
        """Without the library, which was to close the cage, the cage is open."""
        if self._host.preload is not None and not (spec.directory / PRELOAD_SOCKET).is_socket():
            raise MonitorLost("its monitor did not load the preload library; set vmm.qemu_preload to off")

    def _log_start(self, event: str, spec: MachineSpec, begin: float) -> None:
        took_ms = round((self._clock.monotonic() - begin) * 1000)
        _log.info(event, machine=spec.name, accelerator=self._host.accelerator.value, took_ms=took_ms)

    async def adopt(self, handle: MachineHandle) -> QemuMachine | None:
        """Take over a machine that an earlier process started; None when it has ended.

        Raises `MonitorLost` when it runs and does not answer, `MachineRefused` when another driver started it.
        """
        if handle.driver != self.name:
            raise MachineRefused(f"a machine of driver '{handle.driver}' cannot be adopted by '{self.name}'")
        if not is_monitor_of(handle.process, handle.directory):
            return None
        try:
            owner = directory.owner_of(handle.directory)
            async with self._open_ends(handle.directory, owner=owner, pid=handle.process.pid) as ends:
                control = await self._connect(handle.process, handle.directory)
                record = LineageFile.open(handle.directory)
                return self._machine(handle.process, handle.directory, ends, control, record)
        except (MonitorLost, OSError) as error:
            if not handle.process.is_alive():
                return None
            raise MonitorLost(f"the monitor in {handle.directory} runs, but cannot be reached: {error}") from error

    @contextlib.asynccontextmanager
    async def _open_ends(self, home: Path, *, owner: int, pid: int | None = None) -> AsyncIterator[_Ends]:
        """Open our ends; they stay open when the block ends well, and are closed when it does not."""
        with contextlib.ExitStack() as undo:
            console = ConsoleLog(home / CONSOLE_LOG, self._settings.console_limit_kib * KIB)
            undo.callback(console.close)
            console_socket = ConsoleSocket(
                home / CONSOLE_SOCKET,
                owner=owner,
                console=console,
                bytes_per_second=self._settings.console_rate_kib_per_second * KIB,
                clock=self._clock,
            )
            undo.callback(console_socket.close)
            errors = ErrorPipe.open_new() if pid is None else ErrorPipe.open_again(pid)
            undo.callback(errors.close)
            yield _Ends(console, console_socket, errors)
            undo.pop_all()

    async def _spawn(self, spec: MachineSpec, words: list[str], ends: _Ends, state: int | None) -> ProcessIdentity:
        confined = confine(
            words,
            namespace=spec.network.namespace if spec.network is not None else None,
            uid=spec.uid,
            oom_score_adjustment=self._settings.oom_score_adjustment,
            groups=kvm.groups() if self._host.accelerator is Accelerator.KVM else (),
        )
        taps = [await open_tap(spec.network)] if spec.network is not None else []
        try:
            handed_over = [*taps, *([] if state is None else [state])]
            with ends.errors.writing_end() as stderr:
                return spawn_detached(confined, stderr=stderr, handed_over=handed_over)
        except CommandFailed as error:
            raise BootFailed(f"machine {spec.name} could not be started: {error.message}") from error
        finally:
            for tap in taps:
                os.close(tap)

    async def _connect(self, process: ProcessIdentity, home: Path) -> QmpClient:
        """Return the control line as soon as the monitor serves it; raises `MonitorLost` when it does not."""
        limit = self._settings.start_timeout_seconds
        try:
            async with asyncio.timeout(limit):
                while True:
                    try:
                        return await QmpClient.connect(
                            home / CONTROL_SOCKET,
                            pid=process.pid,
                            timeout_seconds=self._settings.command_timeout_seconds,
                        )
                    except (FileNotFoundError, ConnectionError):  # not yet, or no more
                        if not process.is_alive():
                            raise MonitorLost("its monitor ended at once") from None
                        await self._clock.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            raise MonitorLost(f"its monitor did not answer within {limit:g} s") from error

    def _machine(
        self, process: ProcessIdentity, home: Path, ends: _Ends, control: QmpClient, record: LineageFile | None
    ) -> QemuMachine:
        handle = MachineHandle(self.name, home, process)
        lines = Lines(control, ends.console, ends.console_socket, ends.errors)
        capturer = None if record is None else self._capturer(handle, control, record)
        return QemuMachine(handle, lines, self._supervisor, capturer)

    def _capturer(self, handle: MachineHandle, control: QmpClient, record: LineageFile) -> Capturer:
        # What counts is what the monitor was started with, not what a server that adopts it would start one with.
        library = Preload(handle.directory, handle.process, directory.owner_of(handle.directory))
        preload = library if record.lineage.is_preloaded else None
        subject = Subject(
            handle.directory, handle.process, control, self._host.architecture, record=record, preload=preload
        )
        return Capturer(subject, self._reader, self._clock)


async def _end(process: ProcessIdentity, home: Path) -> None:
    process.kill()
    await process.wait_ended()
    reap(process.pid)
    directory.remove_sockets(home)


def _last_words(errors: ErrorPipe) -> str:
    lines = [line.strip() for line in errors.text().splitlines() if line.strip()]
    return f": {' / '.join(lines[-_LAST_LINES:])}" if lines else ""
