"""Starts the block daemon and waits until it answers. What it writes goes to a log of bounded size."""

import asyncio
import contextlib
import os
from pathlib import Path

from agentenv.base import aio
from agentenv.base.clock import Clock
from agentenv.base.process import CommandFailed, ProcessIdentity, reap, spawn_detached
from agentenv.base.units import MIB
from agentenv.blocks.blockd import BlockDaemonClient
from agentenv.blocks.errors import DaemonGone, DaemonSilent
from agentenv.blocks.places import Places
from agentenv.blocks.settings import BlocksSettings

_POLL_SECONDS = 0.01
_LOG_LIMIT_BYTES = MIB
_LAST_BYTES = 600


class Starter:
    """Starts the daemon of one home."""

    def __init__(self, places: Places, settings: BlocksSettings, client: BlockDaemonClient, clock: Clock) -> None:
        self._places = places
        self._settings = settings
        self._client = client
        self._clock = clock

    @property
    def limit_seconds(self) -> float:
        """How long a start, or an end, may take."""
        return self._settings.start_timeout_seconds

    async def start(self, program: Path) -> None:
        """Start the daemon and return when it answers; whatever was started is gone when this raises.

        Raises `DaemonGone` with its own words when it does not start, `DaemonSilent` when it does not answer in time.
        """
        process = self._spawn(program)
        try:
            await self._wait_for_greeting(process)
        except BaseException:
            process.kill()
            await aio.finish(process.wait_ended())
            reap(process.pid)
            raise

    def last_words(self) -> str:
        """Return the end of what the daemon wrote."""
        try:
            with self._places.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return "it left no log"

    def _spawn(self, program: Path) -> ProcessIdentity:
        places = self._places
        words: list[str | Path] = [
            program,
            *("--state", places.state),
            *("--mount", places.mount),
            *("--control", places.control),
            *("--cache", places.cache),
            *("--cache-bytes", str(self._settings.cache_mib * MIB)),
            *("--exporter", self._settings.exporter),
        ]
        stderr = self._open_log()
        try:
            return spawn_detached(words, stderr=stderr)
        except CommandFailed as error:
            raise DaemonGone(f"the block daemon could not be started: {error.message}") from error
        finally:
            os.close(stderr)

    def _open_log(self) -> int:
        path = self._places.log
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > _LOG_LIMIT_BYTES:
                path.replace(path.with_suffix(".log.1"))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    async def _wait_for_greeting(self, process: ProcessIdentity) -> None:
        limit = self.limit_seconds
        try:
            async with asyncio.timeout(limit):
                while True:
                    with contextlib.suppress(DaemonGone):
                        await self._client.hello()
                        return
                    if not process.is_alive():
                        raise DaemonGone(f"the block daemon ended at its start: {self.last_words()}")
                    await self._clock.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            raise DaemonSilent(f"the block daemon did not answer within {limit:g} s: {self.last_words()}") from error
