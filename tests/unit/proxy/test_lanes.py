"""Bookkeeping of connections: what is kept, for how long, and what a cut ends."""

import asyncio

from agentenv.proxy.base import Target
from agentenv.proxy.lanes import Lanes
from agentenv.proxy.settings import ProxySettings
from support.fake_orchestrator import LOOPBACK
from support.wire import Peer, ScriptedGuest


async def hold(peer: Peer) -> None:
    await peer.read_to_end()


def target(port: int, generation: int = 1) -> Target:
    return Target("sandbox", generation, LOOPBACK, port, "/")


async def test_only_so_many_unused_connections_are_kept() -> None:
    lanes = Lanes(ProxySettings(idle_connections_per_sandbox=1))
    async with ScriptedGuest(hold) as guest:
        lane = lanes.enter(target(guest.port))
        first, second = [await lane.open(target(guest.port)) for _ in range(2)]
        lane.keep(first, guest.port)
        lane.keep(second, guest.port)
        assert second.transport.is_closing()
        assert lane.take_idle(guest.port) is first
        assert lane.take_idle(guest.port) is None
        lanes.cut_all()


async def test_an_unused_connection_expires_and_its_lane_is_forgotten() -> None:
    lanes = Lanes(ProxySettings(idle_connection_seconds=0.001))
    async with ScriptedGuest(hold) as guest:
        lane = lanes.enter(target(guest.port))
        connection = await lane.open(target(guest.port))
        lane.keep(connection, guest.port)
        lanes.leave("sandbox", lane)
        while not lane.is_empty:
            await asyncio.sleep(0)
        assert connection.transport.is_closing()
        assert lanes.enter(target(guest.port)) is not lane


async def test_connections_to_different_ports_are_not_mixed() -> None:
    lanes = Lanes(ProxySettings())
    async with ScriptedGuest(hold) as guest:
        lane = lanes.enter(target(guest.port))
        lane.keep(await lane.open(target(guest.port)), guest.port)
        assert lane.take_idle(guest.port + 1) is None
        lanes.cut_all()


async def test_a_cut_lane_keeps_nothing() -> None:
    lanes = Lanes(ProxySettings())
    async with ScriptedGuest(hold) as guest:
        lane = lanes.enter(target(guest.port))
        busy = await lane.open(target(guest.port))
        lanes.cut("sandbox")
        assert busy.transport.is_closing()
        lane.keep(busy, guest.port)
        assert lane.take_idle(guest.port) is None
        assert lanes.enter(target(guest.port)) is not lane
