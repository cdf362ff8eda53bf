"""What a guest may not reach, tried against servers that would answer."""

import socket
import time
from ipaddress import IPv4Address, IPv4Network

import pytest

from agentenv.base import process
from agentenv.network.base import EgressPolicy
from agentenv.network.pool import SlotPool
from agentenv.network.settings import NetworkSettings
from support.network_lab import (
    CARRIER,
    CONTAINER,
    GATEWAY,
    HOME,
    INTERNET,
    METADATA,
    PRIVATE,
    PUBLIC_HOST,
    RESOLVER,
    Lab,
    ask,
    datagram_frame,
)

pytestmark = pytest.mark.host
AT_ONCE_SECONDS = 1.0
KINDS = [socket.SOCK_STREAM, socket.SOCK_DGRAM]


async def assert_refused(
    address: IPv4Address, port: int, namespace: str, kind: socket.SocketKind = socket.SOCK_STREAM
) -> None:
    begin = time.monotonic()
    with pytest.raises(OSError) as refusal:
        await ask(address, port, namespace=namespace, kind=kind)
    assert not isinstance(refusal.value, TimeoutError)
    assert time.monotonic() - begin < AT_ONCE_SECONDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("address", [PRIVATE, METADATA, CARRIER, HOME, RESOLVER])
async def test_a_guest_reaches_no_private_range(
    lab: Lab, pool: SlotPool, address: IPv4Address, kind: socket.SocketKind
) -> None:
    server = await lab.serve(address, 80, namespace=lab.world)
    guest = await lab.attach_guest(await pool.acquire(EgressPolicy()))
    await assert_refused(address, 80, guest.namespace, kind)
    assert server.seen == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_guest_reaches_no_address_of_the_host(lab: Lab, pool: SlotPool, kind: socket.SocketKind) -> None:
    server = await lab.serve(IPv4Address("0.0.0.0"), 8000)
    slot = await pool.acquire(EgressPolicy())
    guest = await lab.attach_guest(slot)
    for address in (PUBLIC_HOST, slot.address - 1, slot.address, slot.guest.gateway):
        await assert_refused(address, 8000, guest.namespace, kind)
    assert server.seen == []


async def test_a_guest_reaches_no_other_guest(lab: Lab, pool: SlotPool) -> None:
    mine, other = await pool.acquire(EgressPolicy()), await pool.acquire(EgressPolicy())
    guest, neighbour = await lab.attach_guest(mine), await lab.attach_guest(other)
    server = await lab.serve(other.guest.address, 80, namespace=neighbour.namespace)
    await assert_refused(other.address, 80, guest.namespace)
    assert server.seen == []


async def test_only_the_host_begins_connections_to_a_guest(lab: Lab, pool: SlotPool) -> None:
    slot = await pool.acquire(EgressPolicy())
    guest = await lab.attach_guest(slot)
    server = await lab.serve(slot.guest.address, 80, namespace=guest.namespace)
    await process.run(["ip", "-n", lab.world, "route", "add", "10.211.0.0/16", "via", str(PUBLIC_HOST)])
    await assert_refused(slot.address, 80, lab.world)
    assert server.seen == []


async def test_a_guest_reaches_no_port_that_the_host_publishes_for_a_container(lab: Lab, pool: SlotPool) -> None:
    server = await lab.serve(CONTAINER, 80, namespace=await lab.add_container())
    published = (
        f"table ip docker {{\nchain pre {{\ntype nat hook prerouting priority dstnat\n"
        f"ip daddr {PUBLIC_HOST} tcp dport 8080 dnat to {CONTAINER}:80\n}}\n}}\n"
    )
    await process.run(["nft", "-f", "-"], stdin=published.encode())
    guest = await lab.attach_guest(await pool.acquire(EgressPolicy()))
    await assert_refused(PUBLIC_HOST, 8080, guest.namespace)
    assert server.seen == []
    await ask(PUBLIC_HOST, 8080, namespace=lab.world)
    assert server.seen == [str(GATEWAY)]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_offline_guest_reaches_nothing_but_answers(lab: Lab, pool: SlotPool, kind: socket.SocketKind) -> None:
    await lab.serve(INTERNET, 443, namespace=lab.world)
    await lab.serve(RESOLVER, 53, namespace=lab.world)
    slot = await pool.acquire(EgressPolicy(allow_internet=False))
    guest = await lab.attach_guest(slot)
    await lab.serve(slot.guest.address, 80, namespace=guest.namespace)
    await assert_refused(INTERNET, 443, guest.namespace, kind)
    await assert_refused(slot.guest.gateway, 53, guest.namespace, kind)
    assert await ask(slot.address, 80, kind=kind) == str(slot.guest.gateway)


async def test_a_reused_slot_forgets_the_policy_of_its_last_holder(lab: Lab, pool: SlotPool) -> None:
    await lab.serve(INTERNET, 443, namespace=lab.world)
    first = await pool.acquire(EgressPolicy(allow_internet=False))
    await pool.release(first)
    second = await pool.acquire(EgressPolicy())
    guest = await lab.attach_guest(second)
    assert await ask(INTERNET, 443, namespace=guest.namespace) == str(PUBLIC_HOST)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("address", [INTERNET, METADATA])
async def test_a_monitor_that_its_guest_took_over_reaches_nothing_from_where_it_runs(
    lab: Lab, pool: SlotPool, address: IPv4Address, kind: socket.SocketKind
) -> None:
    server = await lab.serve(address, 80, namespace=lab.world)
    slot = await pool.acquire(EgressPolicy())
    with pytest.raises(OSError):
        await ask(address, 80, namespace=slot.namespace, kind=kind)
    assert server.seen == []


async def test_a_forged_source_is_dropped(lab: Lab, pool: SlotPool) -> None:
    server = await lab.serve(INTERNET, 443, namespace=lab.world)
    slot = await pool.acquire(EgressPolicy())
    guest = await lab.attach_guest(slot)

    def forge(source: IPv4Address) -> None:
        guest.inject(datagram_frame(source=source, destination=INTERNET, port=443, guest=slot.guest))

    for source in (IPv4Address("10.1.2.3"), slot.address, slot.guest.gateway, PUBLIC_HOST):
        forge(source)
    assert await ask(INTERNET, 443, namespace=guest.namespace, kind=socket.SOCK_DGRAM) == str(PUBLIC_HOST)
    assert len(server.seen) == 1
    forge(slot.guest.address)  # the frame itself is sound: from the true address it arrives
    await ask(INTERNET, 443, namespace=guest.namespace, kind=socket.SOCK_DGRAM)
    assert len(server.seen) == 3


class TestSettings:
    @pytest.fixture
    def settings(self, settings: NetworkSettings) -> NetworkSettings:
        return settings.model_copy(
            update={
                "allow_private_cidrs": (IPv4Network("10.99.0.0/24"),),
                "deny_cidrs": (IPv4Network("203.0.113.0/24"),),
                "max_connections_per_slot": 16,
            }
        )

    async def test_an_allowed_range_is_reached_and_a_denied_one_is_not(self, lab: Lab, pool: SlotPool) -> None:
        await lab.serve(PRIVATE, 80, namespace=lab.world)
        await lab.serve(INTERNET, 80, namespace=lab.world)
        guest = await lab.attach_guest(await pool.acquire(EgressPolicy()))
        assert await ask(PRIVATE, 80, namespace=guest.namespace) == str(PUBLIC_HOST)
        await assert_refused(INTERNET, 80, guest.namespace)

    async def test_a_guest_has_no_more_connections_than_it_may(self, lab: Lab, pool: SlotPool) -> None:
        await lab.serve(PRIVATE, 80, namespace=lab.world)
        guest = await lab.attach_guest(await pool.acquire(EgressPolicy()))
        for _ in range(16):
            await ask(PRIVATE, 80, namespace=guest.namespace, kind=socket.SOCK_DGRAM)
        await assert_refused(PRIVATE, 80, guest.namespace, socket.SOCK_DGRAM)
