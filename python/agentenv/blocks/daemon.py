"""The life of the block daemon: found or started, watched, replaced when it died, ended when nobody needs it.

The daemon outlives this server. It is its supervisor process that is meant here; that one replaces its own server.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from agentenv.base import aio, log, metrics
from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.base.process import CommandFailed, ProcessIdentity, identify, reap, spawn_detached
from agentenv.base.units import MIB
from agentenv.blocks.blockd import BlockDaemonClient, Greeting
from agentenv.blocks.errors import BlocksConflict, DaemonBroken, DaemonGone, DaemonSilent
from agentenv.blocks.places import Places, find_daemons, is_daemon
from agentenv.blocks.settings import BlocksSettings

_log = log.get("blocks")
_deaths = metrics.counter("aenv_blocks_daemon_deaths", "Times that the block daemon's supervisor ended under us.")
_POLL_SECONDS = 0.01
_RESTART_SECONDS = 1.0
_LOG_LIMIT_BYTES = MIB
_LAST_BYTES = 600


class BlockDaemon:
    """Keeps one block daemon alive from `start` to `stop` or `detach`.

    `on_loss` is called when its supervisor has died: every file of its mount that somebody has open is dead then.
    """

    def __init__(
        self,
        *,
        program: Path,
        places: Places,
        settings: BlocksSettings,
        client: BlockDaemonClient,
        supervisor: aio.Supervisor,
        clock: Clock,
        on_loss: Callable[[], None],
    ) -> None:
        self._program = program
        self._places = places
        self._settings = settings
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
        greeting = await self._find()
        was_there = greeting is not None
        if greeting is None:
            greeting = await self._launch()
        process = self._supervising_process()
        event = "block_daemon_adopted" if was_there else "block_daemon_started"
        _log.info(event, pid=process.pid, program=greeting.program)
        self._watch = self._supervisor.start("block_daemon", self._keep(process))
        return was_there

    async def stop(self) -> None:
        """End the daemon, unless images are open: then it goes on for the next server, and the log says so."""
        await self._let_go()
        process = self._supervising_process()
        try:
            await self._client.shutdown()
        except BlocksConflict as error:
            _log.warning("block_daemon_left_running", pid=process.pid, reason=error.message)
        else:
            await process.wait_ended()
            reap(process.pid)
            _log.info("block_daemon_stopped", pid=process.pid)
        await self._client.disconnect()

    async def detach(self) -> None:
        """Leave the daemon running for another process."""
        await self._let_go()
        await self._client.disconnect()

    async def _let_go(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait((self._watch,))

    async def _find(self) -> Greeting | None:
        if not find_daemons(self._places.state):
            return None
        try:
            return await self._client.hello()
        except DaemonGone:
            # It died, or it is about to: its socket belongs to nobody. What starts next cleans up after it.
            return None

    async def _launch(self) -> Greeting:
        process = self._spawn()
        try:
            return await self._wait_for_greeting(process)
        except BaseException:
            process.kill()
            await aio.finish(process.wait_ended())
            reap(process.pid)
            raise

    def _spawn(self) -> ProcessIdentity:
        places = self._places
        words: list[str | Path] = [
            self._program,
            *("--state", places.state),
            *("--mount", places.mount),
            *("--control", places.control),
            *("--cache", places.cache),
            *("--cache-bytes", str(self._settings.cache_mib * MIB)),
        ]
        with contextlib.suppress(FileNotFoundError):
            if places.log.stat().st_size > _LOG_LIMIT_BYTES:
                places.log.replace(places.log.with_suffix(".log.1"))
        stderr = os.open(places.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return spawn_detached(words, stderr=stderr)
        except CommandFailed as error:
            raise DaemonGone(f"the block daemon could not be started: {error.message}") from error
        finally:
            os.close(stderr)

    async def _wait_for_greeting(self, process: ProcessIdentity) -> Greeting:
        limit = self._settings.start_timeout_seconds
        try:
            async with asyncio.timeout(limit):
                while True:
                    with contextlib.suppress(DaemonGone):
                        return await self._client.hello()
                    if not process.is_alive():
                        raise DaemonGone(f"the block daemon ended at its start: {self._last_words()}")
                    await self._clock.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            raise DaemonSilent(f"the block daemon did not answer within {limit:g} s: {self._last_words()}") from error

    def _last_words(self) -> str:
        try:
            with self._places.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return "it left no log"

    def _supervising_process(self) -> ProcessIdentity:
        pid = self._client.peer_pid
        process = identify(pid) if pid is not None else None
        if process is None or not is_daemon(process, self._places.state):
            raise DaemonBroken(f"process {pid}, which serves {self._places.control}, is not our block daemon")
        return process

    async def _keep(self, process: ProcessIdentity) -> None:
        while True:
            await process.wait_ended()
            reap(process.pid)
            _deaths.inc()
            _log.error("block_daemon_died", pid=process.pid, words=self._last_words())
            self._on_loss()
            process = await self._replace()

    async def _replace(self) -> ProcessIdentity:
        while True:
            try:
                await self._launch()
                process = self._supervising_process()
            except AgentEnvError as error:
                _log.error("block_daemon_not_restarted", reason=error.message)
                await self._clock.sleep(_RESTART_SECONDS)
            else:
                _log.warning("block_daemon_restarted", pid=process.pid)
                return process
