"""The connections to each guest: reuse within one generation, a bound on exchanges, and cutting all at once."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from agentenv.proxy.base import Target
from agentenv.proxy.errors import ExchangesExhausted, SandboxGone
from agentenv.proxy.settings import ProxySettings
from agentenv.proxy.upstream import UpstreamConnection, connect


class Lane:
    """All connections to one generation of one guest.

    Invariant: once cut, a lane neither gives out nor keeps a connection.
    """

    def __init__(self, generation: int, settings: ProxySettings, when_empty: Callable[[], None]) -> None:
        self.generation = generation
        self.exchanges = 0
        self.is_cut = False
        self._settings = settings
        self._when_empty = when_empty
        self._open: set[UpstreamConnection] = set()
        self._idle: defaultdict[int, list[UpstreamConnection]] = defaultdict(list)
        self._idle_count = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be lost by forgetting this lane."""
        return not self.exchanges and not self._open

    def take_idle(self, port: int) -> UpstreamConnection | None:
        """Return an unused connection to `port`, the latest used first."""
        idle = self._idle.get(port)
        while idle:
            connection = idle.pop()
            self._idle_count -= 1
            if connection.idle_timer is not None:
                connection.idle_timer.cancel()
            if connection.is_reusable:
                return connection
            connection.close()
        return None

    async def open(self, target: Target) -> UpstreamConnection:
        """Return a new connection. Raises `PortClosed`, `GuestSilent` or `SandboxGone`."""
        connection = await connect(
            target,
            timeout_seconds=self._settings.connect_timeout_seconds,
            limit=self._settings.read_buffer_bytes,
        )
        if self.is_cut:
            connection.abort()
            raise SandboxGone("The sandbox was not found")
        self._open.add(connection)
        connection.when_lost = self._lose
        return connection

    def keep(self, connection: UpstreamConnection, port: int) -> None:
        """Take back a connection whose exchange is complete."""
        is_full = self._idle_count >= self._settings.idle_connections_per_sandbox
        if self.is_cut or is_full or not connection.is_reusable:
            connection.close()
            return
        self._idle[port].append(connection)
        self._idle_count += 1
        connection.idle_timer = asyncio.get_running_loop().call_later(
            self._settings.idle_connection_seconds, self._expire, connection, port
        )

    def cut(self) -> None:
        """End all connections, used or not."""
        self.is_cut = True
        for connection in self._open:
            if connection.idle_timer is not None:
                connection.idle_timer.cancel()
            connection.abort("the sandbox was ended")
        self._idle.clear()
        self._idle_count = 0

    def _lose(self, connection: UpstreamConnection) -> None:
        self._open.discard(connection)
        if self.is_empty:
            self._when_empty()

    def _expire(self, connection: UpstreamConnection, port: int) -> None:
        idle = self._idle[port]
        if connection in idle:
            idle.remove(connection)
            self._idle_count -= 1
            connection.close()
        if not idle:
            del self._idle[port]


class Lanes:
    """The lanes of all guests."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._by_owner: dict[str, Lane] = {}

    def enter(self, target: Target) -> Lane:
        """Count one more exchange to a guest and return its lane. Raises `ExchangesExhausted` or `SandboxGone`.

        The first exchange of a new generation cuts whatever the old one left.
        """
        lane = self._by_owner.get(target.owner)
        if lane is not None and lane.generation < target.generation:
            lane.cut()
            lane = None
        if lane is None:
            lane = self._by_owner[target.owner] = Lane(
                target.generation, self._settings, partial(self._forget_if_empty, target.owner)
            )
        if lane.generation > target.generation:
            raise SandboxGone("The sandbox was not found")
        if lane.exchanges >= self._settings.exchanges_per_sandbox:
            raise ExchangesExhausted(
                f"the sandbox already carries {lane.exchanges} requests and streams; end some of them",
                retry_after_seconds=1,
            )
        lane.exchanges += 1
        return lane

    def leave(self, owner: str, lane: Lane) -> None:
        """Count one exchange less."""
        lane.exchanges -= 1
        self._forget_if_empty(owner)

    def cut(self, owner: str) -> None:
        """End everything that goes to the guest of `owner`."""
        lane = self._by_owner.pop(owner, None)
        if lane is not None:
            lane.cut()

    def cut_all(self) -> None:
        """End everything."""
        for owner in list(self._by_owner):
            self.cut(owner)

    def _forget_if_empty(self, owner: str) -> None:
        lane = self._by_owner.get(owner)
        if lane is not None and lane.is_empty:
            del self._by_owner[owner]
