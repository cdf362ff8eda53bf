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
from agentenv.base.units import KIB
from agentenv.vmm.base import Accelerator, Capability, MachineFacts, MachineHandle, MachineSpec, RestoreSource
from agentenv.vmm.console import ConsoleLog
from agentenv.vmm.errors import BootFailed, MachineRefused, MonitorLost
from agentenv.vmm.qemu import directory, facts, kvm
from agentenv.vmm.qemu.command_line import CONSOLE_LOG, CONSOLE_SOCKET, CONTROL_SOCKET, HostFacts, build
from agentenv.vmm.qemu.confinement import confine
from agentenv.vmm.qemu.console_socket import ConsoleSocket
from agentenv.vmm.qemu.error_pipe import ErrorPipe
from agentenv.vmm.qemu.machine import Lines, QemuMachine
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
        return frozenset({Capability.PAUSE})

    async def boot(self, spec: MachineSpec) -> QemuMachine:
        """Start a machine from its kernel; returns when the monitor answers.

        Raises `MachineRefused` for what cannot be started, `BootFailed` with the monitor's own words when it did not.
        """
        check_specification(spec)
        begin = self._clock.monotonic()
        directory.prepare(spec.directory, spec.uid)
        async with self._open_ends(spec.directory, owner=spec.uid) as ends:
            process = await self._spawn(spec, ends)
            try:
                control = await self._connect(process, spec.directory)
            except MonitorLost as error:
                await aio.finish(_end(process, spec.directory))
                words = _last_words(ends.errors)
                raise BootFailed(f"machine {spec.name} could not be started: {error.message}{words}") from error
            except BaseException:
                await aio.finish(_end(process, spec.directory))
                raise
            machine = self._machine(process, spec.directory, ends, control)
        took_ms = round((self._clock.monotonic() - begin) * 1000)
        _log.info("machine_started", machine=spec.name, accelerator=self._host.accelerator.value, took_ms=took_ms)
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
        raise BootFailed(f"machine {spec.name} could not be restored: this driver only boots")

    async def adopt(self, handle: MachineHandle) -> QemuMachine | None:
        """Take over a machine that an earlier process started; None when it has ended.

        Raises `MonitorLost` when it runs and does not answer, `MachineRefused` when another driver started it.
        """
        if handle.driver != self.name:
            raise MachineRefused(f"a machine of driver '{handle.driver}' cannot be adopted by '{self.name}'")
        if not is_monitor_of(handle.process, handle.directory):
            return None
        try:
            owner = (handle.directory / CONTROL_SOCKET).parent.stat().st_uid
            async with self._open_ends(handle.directory, owner=owner, pid=handle.process.pid) as ends:
                control = await self._connect(handle.process, handle.directory)
                return self._machine(handle.process, handle.directory, ends, control)
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

    async def _spawn(self, spec: MachineSpec, ends: _Ends) -> ProcessIdentity:
        words = confine(
            build(self._host, spec),
            namespace=spec.network.namespace if spec.network is not None else None,
            uid=spec.uid,
            oom_score_adjustment=self._settings.oom_score_adjustment,
            groups=kvm.groups() if self._host.accelerator is Accelerator.KVM else (),
        )
        taps = [await open_tap(spec.network)] if spec.network is not None else []
        try:
            with ends.errors.writing_end() as stderr:
                return spawn_detached(words, stderr=stderr, handed_over=taps)
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

    def _machine(self, process: ProcessIdentity, home: Path, ends: _Ends, control: QmpClient) -> QemuMachine:
        handle = MachineHandle(self.name, home, process)
        return QemuMachine(handle, Lines(control, ends.console, ends.console_socket, ends.errors), self._supervisor)


async def _end(process: ProcessIdentity, home: Path) -> None:
    process.kill()
    await process.wait_ended()
    reap(process.pid)
    directory.remove_control_socket(home)


def _last_words(errors: ErrorPipe) -> str:
    lines = [line.strip() for line in errors.text().splitlines() if line.strip()]
    return f": {' / '.join(lines[-_LAST_LINES:])}" if lines else ""
