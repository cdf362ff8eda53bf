"""The client of the block daemon: one call per verb. Owns reconnecting; knows no sandbox.

Every verb is idempotent, so a call whose connection ends is simply made again: guests and callers only wait while the
daemon's supervisor replaces its server process.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentenv.base import aio, log
from agentenv.base.clock import Clock
from agentenv.blocks.base import FileLayer, LayerSource, Stack
from agentenv.blocks.connection import Connection, ConnectionLost
from agentenv.blocks.errors import DaemonBroken, DaemonGone, DaemonSilent, DiskDamaged
from agentenv.blocks.frames import VERSION
from agentenv.blocks.settings import BlocksSettings

_log = log.get("blocks")
_RETRY_SECONDS = 0.02
_LONG_TIMES = 60
_ABSENCE_SECONDS = 10.0
_layer: TypeAdapter[LayerSource] = TypeAdapter(LayerSource)


class _Answer(BaseModel):
    # A newer daemon may say more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Greeting(_Answer):
    """Who the daemon is."""

    version: int
    program: str
    pid: int
    mount: Path


class Opened(_Answer):
    """An image that can be opened at `path`."""

    path: Path
    size_bytes: int = Field(gt=0)


class Closed(_Answer):
    """Whether there was something to close."""

    was_open: bool


class Frozen(_Answer):
    """How long the image did not answer."""

    frozen_microseconds: int


class Sealed(_Answer):
    """A layer that is durable."""

    path: Path
    size_bytes: int
    digest: str | None


class ImageState(StrEnum):
    """Whether an image can be read: a new server process of the daemon puts images together one by one."""

    LOADING = "loading"
    READY = "ready"
    UNREADABLE = "unreadable"


class Listed(_Answer):
    """One open image of the list."""

    name: str


class Described(Listed):
    """What an open image is made of. `reason` says why it cannot be read."""

    path: Path
    state: ImageState
    reason: str | None = None
    size_bytes: int | None
    layers: tuple[LayerSource, ...]


class _List(_Answer):
    images: tuple[Listed, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Writable:
    """The writable layer of a disk: its directory, and the size of the disk when it is larger than its base."""

    directory: Path
    size_bytes: int | None


_Shape = TypeVar("_Shape", bound=_Answer)


class BlockDaemonClient:
    """Calls the daemon that serves the control socket at `path`."""

    def __init__(self, path: Path, settings: BlocksSettings, supervisor: aio.Supervisor, clock: Clock) -> None:
        self._path = path
        self._settings = settings
        self._supervisor = supervisor
        self._clock = clock
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    async def hello(self) -> Greeting:
        """Ask who the daemon is. Raises `DaemonBroken` when it speaks another version of the protocol."""
        greeting = await self._call("hello", {}, Greeting, absence_seconds=0)
        if greeting.version != VERSION:
            raise DaemonBroken(
                f"the block daemon speaks version {greeting.version} of its protocol, and this server {VERSION}"
            )
        return greeting

    async def open_disk(self, name: str, base: Stack, writable: Writable, *, owner: int) -> Opened:
        """Open a writable disk over `base`, for user id `owner`."""
        layer = {"directory": str(writable.directory), "size_bytes": writable.size_bytes, "overwrite": "in_place"}
        arguments = {"name": name, "layers": _words(base), "writable": layer, "use": "disk", "owner": owner}
        return await self._call("open", arguments, Opened)

    async def open_memory(self, name: str, stack: Stack) -> Opened:
        """Open a read-only image for memory, for everybody."""
        arguments = {"name": name, "layers": _words(stack), "writable": None, "use": "memory", "owner": 0}
        return await self._call("open", arguments, Opened)

    async def close(self, name: str, *, discard: bool, force: bool) -> bool:
        """Close an image; return whether it was open. Raises `BlocksConflict` for one in use, unless by force."""
        arguments = {"name": name, "discard": discard, "force": force}
        return (await self._call("close", arguments, Closed)).was_open

    async def seal(self, name: str, seal_id: str, *, sealed: Path, following: Path) -> int:
        """Freeze the writable layer, to become `sealed`; the next is in the directory `following`.

        Returns for how many microseconds the image did not answer.
        """
        arguments = {"name": name, "seal_id": seal_id, "sealed_path": str(sealed), "next_directory": str(following)}
        return (await self._call("seal", arguments, Frozen)).frozen_microseconds

    async def sealed(self, name: str, seal_id: str) -> Sealed:
        """Return when a sealed layer is durable, with its digest."""
        arguments = {"name": name, "seal_id": seal_id, "digest": True}
        return await self._call("sealed", arguments, Sealed, is_long=True)

    async def stat(self, name: str) -> Described:
        """Return what an image is made of, once that is known. Raises `DiskDamaged` when its layers cannot be read."""
        deadline = self._clock.monotonic() + self._settings.request_timeout_seconds
        while True:
            image = await self._call("stat", {"name": name}, Described)
            match image.state:
                case ImageState.READY:
                    return image
                case ImageState.UNREADABLE:
                    raise DiskDamaged(f"{name} cannot be read: {image.reason}")
                case ImageState.LOADING:
                    if self._clock.monotonic() > deadline:
                        raise DaemonSilent(f"the block daemon is still putting {name} together")
                    await self._clock.sleep(_RETRY_SECONDS)

    async def images(self) -> tuple[Listed, ...]:
        """Return all open images. Those that are opened or closed meanwhile may be missing or gone."""
        found: list[Listed] = []
        arguments: dict[str, object] = {}
        while True:
            page = await self._call("list", arguments, _List)
            found += page.images
            if page.next is None:
                return tuple(found)
            # Names only grow from page to page: a daemon that repeats itself must not hold us for ever.
            if page.next <= str(arguments.get("behind", "")):
                raise DaemonBroken("the block daemon lists its images in circles")
            arguments = {"behind": page.next}

    async def shutdown(self) -> None:
        """End the daemon. Raises `BlocksConflict` while images are open."""
        await self._call("shutdown", {}, _Answer, absence_seconds=0)

    async def wait_disconnected(self) -> None:
        """Return when the connection in use has ended: the daemon's server process has, in all likelihood."""
        if self._connection is not None:
            await self._connection.wait_lost()

    async def disconnect(self) -> None:
        """Let go of the daemon."""
        if self._connection is not None:
            await self._connection.close()

    async def _call(
        self,
        verb: str,
        arguments: Mapping[str, object],
        shape: type[_Shape],
        *,
        is_long: bool = False,
        absence_seconds: float = _ABSENCE_SECONDS,
    ) -> _Shape:
        seconds = self._settings.request_timeout_seconds * (_LONG_TIMES if is_long else 1)
        try:
            async with asyncio.timeout(seconds):
                result = await self._persist(verb, arguments, absence_seconds)
        except TimeoutError as error:
            raise DaemonSilent(f"the block daemon did not answer {verb} within {seconds:g} s") from error
        try:
            return shape.model_validate(result)
        except ValidationError as error:
            raise DaemonBroken(f"the block daemon answered {verb} with something else: {error}") from error

    async def _persist(
        self, verb: str, arguments: Mapping[str, object], absence_seconds: float
    ) -> Mapping[str, object]:
        begin = self._clock.monotonic()
        while True:
            try:
                connection = await self._connect()
                return await connection.request(verb, arguments)
            except ConnectionLost:
                _log.warning("block_daemon_connection_lost", verb=verb)
            except DaemonGone:
                # Somebody may be starting the next one.
                if self._clock.monotonic() - begin >= absence_seconds:
                    raise
            await self._clock.sleep(_RETRY_SECONDS)

    async def _connect(self) -> Connection:
        async with self._connecting:
            if self._connection is None or self._connection.is_lost:
                self._connection = await Connection.open(self._path)
                self._supervisor.start("blockd", self._connection.listen())
            return self._connection


def _words(stack: Stack) -> list[dict[str, object]]:
    return [_word(layer) for layer in stack.layers]


def _word(layer: LayerSource) -> dict[str, object]:
    words: dict[str, object] = _layer.dump_python(layer, mode="json")
    if isinstance(layer, FileLayer):
        # A file is believed as it is; its digest is ours to remember.
        del words["digest"]
    return words
