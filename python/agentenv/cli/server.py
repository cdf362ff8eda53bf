"""The server that a verb talks to: the options that choose it, and its clients, opened for one run."""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agentenv.base.clock import Clock, SystemClock
from agentenv.client.base import Flags, Sandbox
from agentenv.client.errors import KeyMissing

# A verb pays for importing the clients only when it runs.

if TYPE_CHECKING:
    from agentenv.client.api import ApiClient
    from agentenv.client.daemon import Daemon
    from agentenv.client.settings import ClientSettings
    from agentenv.client.snapshots import SnapshotsClient
    from agentenv.client.transport import Transport

_T = TypeVar("_T")


def server_options(function: Callable[..., _T]) -> Callable[..., _T]:
    """Give a verb the options `--url` and `--key`; the function receives them as `flags`."""

    @click.option("--url", metavar="URL", help="Address of the server's API.")
    @click.option("--key", metavar="KEY", help="API key; the environment and `aenv auth` keep it off the screen.")
    @functools.wraps(function)
    def with_flags(*arguments: Any, url: str | None, key: str | None, **options: Any) -> _T:
        return function(*arguments, flags=Flags(url, key), **options)

    return with_flags


@dataclass(frozen=True, slots=True)
class Server:
    """An open connection to a server."""

    settings: "ClientSettings"
    transport: "Transport"
    api: "ApiClient"
    clock: Clock

    @property
    def snapshots(self) -> "SnapshotsClient":
        """The client of the server's snapshots."""
        from agentenv.client.snapshots import SnapshotsClient  # noqa: PLC0415 - few verbs need it

        return SnapshotsClient(self.api)

    def daemon_of(self, sandbox: Sandbox) -> "Daemon":
        """Return the client of the daemon in `sandbox`."""
        from agentenv.client.daemon import Daemon  # noqa: PLC0415 - not every verb enters a sandbox

        return Daemon(self.transport, self.settings, sandbox)


@contextlib.asynccontextmanager
async def open_server(flags: Flags) -> AsyncIterator[Server]:
    """Find the server and its key, and give clients for it. Raises `KeyMissing`."""
    from agentenv.client.api import ApiClient  # noqa: PLC0415 - `aenv --help` must not wait for it
    from agentenv.client.configuration import load  # noqa: PLC0415
    from agentenv.client.transport import Transport  # noqa: PLC0415

    settings = load(flags, os.environ).settings
    if settings.api_key is None:
        raise KeyMissing(f"no API key is known for {settings.api_url}: run `aenv auth`, or set AENV_API_KEY")
    async with Transport(settings) as transport:
        clock = SystemClock()
        yield Server(settings, transport, ApiClient(transport, settings, clock), clock)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run the asynchronous part of a verb to its end."""
    return asyncio.run(work)
