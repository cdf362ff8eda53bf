"""Slots over time: reuse, leftovers, adoption, other firewalls; with a real kernel."""

import asyncio
import os
import signal
import socket
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from agentenv.base import process
from agentenv.network import conntrack, namespaces, nft, tap
from agentenv.network.base import EgressPolicy, Slot
from agentenv.network.errors import NetworkFailed, RangeInUse, SlotLost
from agentenv.network.leftovers import Leftovers, find_leftovers
from agentenv.network.pool import SlotPool, plan_of
from agentenv.network.probe import probe
from agentenv.network.settings import NetworkSettings
from support.network_lab import INTERNET, PUBLIC_HOST, Lab, ask, in_namespace, tracked_connections

pytestmark = pytest.mark.host
NOTHING = Leftovers((), (), (), ())
ONLINE = EgressPolicy()
OTHER_NETWORK = IPv4Network("10.212.0.0/16")

# A server that takes three slots, one of them offline, and dies without a word.
_DIE_WITH_SLOTS = """
import asyncio, os, signal, sys
from agentenv.network.base import EgressPolicy
from agentenv.network.pool import SlotPool
from agentenv.network.settings import NetworkSettings

async def main():
    pool = SlotPool(NetworkSettings.model_validate_json(sys.argv[1]))
    await pool.start(frozenset())
    for allow in (True, False, True):
        await pool.acquire(EgressPolicy(allow_internet=allow))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def run_dying_server(settings: NetworkSettings) -> None:
    source = Path(__file__).parents[3] / "python"
    with pytest.raises(process.CommandFailed, match=f"ended with -{signal.SIGKILL}"):
        await process.run(
            [sys.executable, "-c", _DIE_WITH_SLOTS, settings.model_dump_json()],
            environment={**os.environ, "PYTHONPATH": str(source)},
        )


async def test_stop_leaves_nothing(pool: SlotPool, settings: NetworkSettings) -> None:
    await pool.acquire(ONLINE)
    await pool.acquire(EgressPolicy(allow_internet=False))
    assert await find_leftovers(plan_of(settings)) != NOTHING
    await pool.stop()
    assert await find_leftovers(plan_of(settings)) == NOTHING
    await pool.stop()


async def test_start_removes_what_a_killed_server_left(lab: Lab, settings: NetworkSettings) -> None:
    await run_dying_server(settings)
    left = await find_leftovers(plan_of(settings))
    assert len(left.namespaces) == len(left.links) == 3
    pool = SlotPool(settings)
    await pool.start(frozenset())
    assert (await find_leftovers(plan_of(settings))).names == frozenset()
    await pool.stop()
    assert await find_leftovers(plan_of(settings)) == NOTHING


async def test_start_removes_slots_that_were_never_finished(lab: Lab, settings: NetworkSettings) -> None:
    plan = plan_of(settings)
    namespaces.path_of(plan.name(5)).touch()
    await process.run(["ip", "netns", "add", plan.name(6)])
    await process.run(["ip", "link", "add", plan.name(7), "type", "veth", "peer", "name", "other"])
    await process.run(["ip", "netns", "add", plan.probe_name])
    pool = SlotPool(settings)
    await pool.start(frozenset())
    assert (await find_leftovers(plan)).names == frozenset()
    await pool.stop()


async def test_stop_removes_a_slot_whose_tap_is_still_held(lab: Lab, pool: SlotPool, settings: NetworkSettings) -> None:
    guest = await lab.attach_guest(await pool.acquire(ONLINE))
    await pool.stop()
    assert await find_leftovers(plan_of(settings)) == NOTHING
    await guest.unplug()


async def test_names_of_another_server_are_left_alone(pool: SlotPool, settings: NetworkSettings) -> None:
    neighbour = SlotPool(settings.model_copy(update={"prefix": settings.prefix + "b", "network": OTHER_NETWORK}))
    await neighbour.start(frozenset())
    slot = await neighbour.acquire(ONLINE)
    await pool.acquire(ONLINE)
    await pool.stop()
    left = await find_leftovers(plan_of(settings.model_copy(update={"prefix": settings.prefix + "b"})))
    assert left.names == {slot.namespace}
    assert left.tables == (settings.prefix + "b",)
    await neighbour.stop()


async def test_a_kept_slot_works_on_for_the_next_server(lab: Lab, settings: NetworkSettings) -> None:
    await lab.serve(INTERNET, 443, namespace=lab.world)
    await run_dying_server(settings)
    pool = SlotPool(settings)
    await pool.start(frozenset({0, 1}))
    try:
        online, offline = await pool.adopt(0, ONLINE), await pool.adopt(1, EgressPolicy(allow_internet=False))
        assert (await find_leftovers(plan_of(settings))).names == {online.namespace, offline.namespace}
        guest = await lab.attach_guest(online)
        await lab.serve(online.guest.address, 80, namespace=guest.namespace)
        assert await ask(online.address, 80) == str(online.guest.gateway)
        assert await ask(INTERNET, 443, namespace=guest.namespace) == str(PUBLIC_HOST)
        fenced = await lab.attach_guest(offline)
        with pytest.raises(ConnectionRefusedError):
            await ask(INTERNET, 443, namespace=fenced.namespace)
    finally:
        await pool.stop()


async def test_a_kept_slot_that_lost_its_link_is_removed(lab: Lab, settings: NetworkSettings) -> None:
    await run_dying_server(settings)
    pool = SlotPool(settings)
    await pool.start(frozenset({0}))
    await process.run(["ip", "link", "del", plan_of(settings).name(0)])
    with pytest.raises(SlotLost, match="the host lacks"):
        await pool.adopt(0, ONLINE)
    assert (await find_leftovers(plan_of(settings))).names == frozenset()
    await pool.stop()


async def test_stop_keeps_slots_and_the_rules_that_fence_them(pool: SlotPool, settings: NetworkSettings) -> None:
    kept, _ = await pool.acquire(ONLINE), await pool.acquire(ONLINE)
    await pool.stop(keep=frozenset({kept.index}))
    left = await find_leftovers(plan_of(settings))
    assert left.names == {kept.namespace}
    assert left.tables == (settings.prefix,)


async def test_sixteen_at_once_get_slots_of_their_own(pool: SlotPool) -> None:
    slots = await asyncio.gather(*(pool.acquire(ONLINE) for _ in range(16)))
    assert len({(slot.namespace, slot.address, slot.owner) for slot in slots}) == 16


async def _reuse(pool: SlotPool, slot: Slot) -> Slot:
    await pool.release(slot)
    return await pool.acquire(ONLINE)


class TestReuse:
    @pytest.fixture
    def settings(self, settings: NetworkSettings) -> NetworkSettings:
        return settings.model_copy(update={"max_slots": 1, "ready_slots_high": 1})

    async def test_no_connection_of_the_last_holder_is_remembered(self, lab: Lab, pool: SlotPool) -> None:
        await lab.serve(INTERNET, 443, namespace=lab.world)
        slot = await pool.acquire(ONLINE)
        guest = await lab.attach_guest(slot)
        await lab.serve(slot.guest.address, 80, namespace=guest.namespace)
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            await ask(INTERNET, 443, namespace=guest.namespace, kind=kind)
            await ask(slot.address, 80, kind=kind)
        assert await tracked_connections(slot.namespace) >= 4
        assert await tracked_connections(None) >= 4
        await guest.unplug()
        again = await _reuse(pool, slot)
        assert again == slot
        assert await tracked_connections(slot.namespace) == 0
        assert await tracked_connections(None) == 0

    async def test_connections_of_others_are_remembered(self, lab: Lab, pool: SlotPool) -> None:
        await lab.serve(INTERNET, 443, namespace=lab.world)
        slot = await pool.acquire(ONLINE)
        guest = await lab.attach_guest(slot)
        await ask(INTERNET, 443, namespace=guest.namespace, kind=socket.SOCK_DGRAM)
        await ask(INTERNET, 443, kind=socket.SOCK_DGRAM)
        assert await in_namespace(None, lambda: conntrack.forget(slot.address)) == 1
        assert await tracked_connections(None) == 1

    async def test_a_slot_whose_tap_is_still_held_is_not_reused_but_removed(
        self, lab: Lab, pool: SlotPool, settings: NetworkSettings
    ) -> None:
        slot = await pool.acquire(ONLINE)
        guest = await lab.attach_guest(slot)
        await pool.release(slot)
        assert (await find_leftovers(plan_of(settings))).names == frozenset()
        again = await pool.acquire(ONLINE)
        assert await in_namespace(again.namespace, lambda: tap.is_held(again.tap)) is False
        await guest.unplug()


async def test_a_firewall_that_drops_is_opened_for_slots_and_closed_again(lab: Lab, settings: NetworkSettings) -> None:
    foreign = b"table ip filter {\nchain FORWARD {\ntype filter hook forward priority 0; policy drop\n}\n}\n"
    await process.run(["nft", "-f", "-"], stdin=foreign)
    before = (await process.run(["nft", "list", "ruleset"])).stdout
    await lab.serve(INTERNET, 443, namespace=lab.world)
    pool = SlotPool(settings)
    await pool.start(frozenset())
    guest = await lab.attach_guest(await pool.acquire(ONLINE))
    assert await ask(INTERNET, 443, namespace=guest.namespace) == str(PUBLIC_HOST)
    await guest.unplug()
    await pool.stop()
    assert (await process.run(["nft", "list", "ruleset"])).stdout == before


async def test_rules_of_the_host_that_somebody_flushed_come_back(lab: Lab, settings: NetworkSettings) -> None:
    pool = SlotPool(settings.model_copy(update={"host_check_seconds": 0.05}))
    await pool.start(frozenset())
    await process.run(["nft", "flush", "ruleset"])
    async with asyncio.timeout(10):
        while not await nft.has_table(settings.prefix):
            await asyncio.sleep(0.01)
    await pool.stop()


async def test_a_range_that_somebody_else_routes_is_refused(lab: Lab, settings: NetworkSettings) -> None:
    await process.run(["ip", "route", "add", "10.211.7.0/24", "dev", "wan"])
    pool = SlotPool(settings)
    with pytest.raises(RangeInUse, match=r"10\.211\.7\.0/24 is routed through wan"):
        await pool.start(frozenset())
    assert await find_leftovers(plan_of(settings)) == NOTHING


async def test_a_probe_finds_this_host_able_and_leaves_nothing(lab: Lab, settings: NetworkSettings) -> None:
    facts = await probe(settings)
    assert [fact for fact in facts if not fact.is_ok] == []
    assert await find_leftovers(plan_of(settings)) == NOTHING


async def test_a_probe_beside_a_running_pool_disturbs_nothing(pool: SlotPool, settings: NetworkSettings) -> None:
    await pool.acquire(ONLINE)
    before = await find_leftovers(plan_of(settings))
    assert all(fact.is_ok for fact in await probe(settings))
    assert await find_leftovers(plan_of(settings)) == before


async def test_a_cancelled_acquire_gives_its_slot_back(pool: SlotPool, settings: NetworkSettings) -> None:
    waiting = asyncio.ensure_future(pool.acquire(EgressPolicy(allow_internet=False)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await pool.stop()
    assert await find_leftovers(plan_of(settings)) == NOTHING


async def test_a_slot_cannot_be_taken_before_the_fence_stands(lab: Lab, settings: NetworkSettings) -> None:
    with pytest.raises(NetworkFailed, match="not started"):
        await SlotPool(settings).acquire(ONLINE)
