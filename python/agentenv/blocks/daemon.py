"""The life of the block daemon: found or started, watched, replaced when it died, ended when nobody needs it.

The daemon outlives this server: it is two processes, a supervisor and a server, each of which replaces the other.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentenv.base import aio, log, metrics, mounts
from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.base.process import ProcessIdentity, reap
from agentenv.blocks.blockd import BlockDaemonClient
from agentenv.blocks.errors import BlocksConflict, DaemonGone, DaemonSilent
from agentenv.blocks.places import Places
from agentenv.blocks.processes import DaemonProcesses, find_daemon, program_of
from agentenv.blocks.start import Starter

_log = log.get("blocks")
_deaths = metrics.counter("aenv_blocks_daemon_deaths", "Times that the whole block daemon ended under us.")
_PAUSE_SECONDS = 1.0
_LONELY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Mounted:
    """What disks depend on: a process that keeps the mount alive, and the mount itself."""

    keeper: ProcessIdentity
    mount: int | None
    has_supervisor: bool


class BlockDaemon:
    """Keeps one block daemon alive from `start` to `stop` or `detach`.

    `on_loss` is called when every file of its mount that somebody has open is dead.
    """

    def __init__(
        self,
        *,
        program: Path,
        places: Places,
        starter: Starter,
        client: BlockDaemonClient,
        supervisor: aio.Supervisor,
        clock: Clock,
        on_loss: Callable[[], None],
    ) -> None:
        self._program = program
        self._places = places
        self._starter = starter
        self._client = client
        self._supervisor = supervisor
        self._clock = clock
        self._on_loss = on_loss
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """Take over the daemon that runs, or start one; return whether it ran already, with all that it serves.

        Raises `DaemonGone` with its own words when it does not start, `DaemonSilent` when it runs and does not answer,
        `DaemonBroken` when it speaks another protocol.
        """
        self._places.make()
        was_there = await self._adopt()
        if not was_there:
            await self._starter.start(self._program)
        mounted = self._look()
        event = "block_daemon_adopted" if was_there else "block_daemon_started"
        _log.info(event, pid=mounted.keeper.pid)
        self._watch = self._supervisor.start("block_daemon", self._keep(mounted))
        return was_there

    async def stop(self) -> None:
        """End the daemon, unless images are open: then it goes on for the next server, and the log says so."""
        await self._let_go()
        if not await self._end_unused():
            _log.warning("block_daemon_left_running", reason="it still has images open")
        await self._client.disconnect()

    async def detach(self) -> None:
        """Leave the daemon running for another process."""
        await self._let_go()
        await self._client.disconnect()

    async def _let_go(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait((self._watch,))

    async def _adopt(self) -> bool:
        """Return whether a daemon runs that is to be used; one that is not as it should be ends when it is unused."""
        processes = find_daemon(self._places.state)
        if processes.keeper is None:
            return False
        try:
            await self._client.hello()
        except DaemonGone:
            await self._wait_ended(processes)
            return False
        if processes.supervisor is not None and program_of(processes.supervisor) == self._program.resolve():
            return True
        if await self._end_unused():
            return False
        what = "has no supervisor" if processes.supervisor is None else "is not the one that was prepared"
        _log.warning("block_daemon_not_replaced", reason=f"it {what}, but still has images open")
        return True

    async def _end_unused(self) -> bool:
        """End the daemon when no image is open; return whether it has ended."""
        processes = find_daemon(self._places.state)
        try:
            await self._client.shutdown()
        except BlocksConflict:
            return False
        except DaemonGone:
            pass  # it is ending already
        await self._wait_ended(processes)
        _log.info("block_daemon_stopped")
        return True

    async def _wait_ended(self, processes: DaemonProcesses) -> None:
        limit = self._starter.limit_seconds
        try:
            async with asyncio.timeout(limit):
                for process in processes.all:
                    await process.wait_ended()
                    reap(process.pid)
        except TimeoutError as error:
            pids = ", ".join(str(process.pid) for process in processes.all)
            raise DaemonSilent(f"the block daemon (processes {pids}) did not end within {limit:g} s") from error

    def _look(self) -> _Mounted:
        processes = find_daemon(self._places.state)
        if processes.keeper is None:
            raise DaemonGone("the block daemon ended just after its start")
        numbers = [mount.number for mount in mounts.read() if mount.point == self._places.mount]
        return _Mounted(processes.keeper, numbers[-1] if numbers else None, processes.supervisor is not None)

    async def _keep(self, mounted: _Mounted) -> None:
        while True:
            waits = [mounted.keeper.wait_ended(), self._client.wait_disconnected()]
            if not mounted.has_supervisor:
                waits.append(self._clock.sleep(_LONELY_SECONDS))
            await aio.first(*waits)
            reap(mounted.keeper.pid)
            try:
                mounted = await self._follow(mounted)
            except AgentEnvError as error:
                _log.error("block_daemon_not_replaced", reason=error.message)
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _follow(self, before: _Mounted) -> _Mounted:
        """Find out what has become of the daemon, do what that asks for, and return what there is now."""
        if find_daemon(self._places.state).keeper is None:
            _deaths.inc()
            _log.error("block_daemon_died", words=self._starter.last_words())
            self._on_loss()
            await self._starter.start(self._program)
            _log.warning("block_daemon_restarted")
            return self._look()
        greeting = await self._client.hello()
        now = self._look()
        if now.mount != before.mount:
            # Both died at once, or this is a kernel that cannot hand out requests again.
            _log.error("block_daemon_mount_replaced")
            self._on_loss()
        elif not now.has_supervisor and not before.has_supervisor and await self._end_unused():
            await self._starter.start(self._program)
            now = self._look()
        if now.has_supervisor and now.keeper != before.keeper:
            _log.warning("block_supervisor_replaced", pid=now.keeper.pid)
        elif before.has_supervisor and not now.has_supervisor:
            _log.warning("block_supervisor_died", detail="its server goes on, and starts another")
        elif now.has_supervisor:
            _log.warning("block_server_replaced", pid=greeting.pid)
        return now
