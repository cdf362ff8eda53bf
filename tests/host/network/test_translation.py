"""Packets to and from a guest, through a real slot."""

import socket

import pytest

from agentenv.network.base import EgressPolicy
from agentenv.network.pool import SlotPool
from agentenv.network.settings import NetworkSettings
from support.network_lab import INTERNET, PUBLIC_HOST, RESOLVER, Lab, ask

pytestmark = pytest.mark.host
KINDS = [socket.SOCK_STREAM, socket.SOCK_DGRAM]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_port_of_the_slot_is_the_same_port_of_the_guest(
    lab: Lab, pool: SlotPool, kind: socket.SocketKind
) -> None:
    slot = await pool.acquire(EgressPolicy())
    guest = await lab.attach_guest(slot)
    for port in (1, 80, 49983, 65535):
        await lab.serve(slot.guest.address, port, namespace=guest.namespace)
        assert await ask(slot.address, port, kind=kind) == str(slot.guest.gateway)


async def test_a_closed_port_of_the_guest_is_refused(lab: Lab, pool: SlotPool) -> None:
    slot = await pool.acquire(EgressPolicy())
    await lab.attach_guest(slot)
    with pytest.raises(ConnectionRefusedError):
        await ask(slot.address, 81)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_guest_reaches_the_internet_under_the_address_of_the_host(
    lab: Lab, pool: SlotPool, kind: socket.SocketKind
) -> None:
    await lab.serve(INTERNET, 443, namespace=lab.world)
    guest = await lab.attach_guest(await pool.acquire(EgressPolicy()))
    assert await ask(INTERNET, 443, namespace=guest.namespace, kind=kind) == str(PUBLIC_HOST)


@pytest.mark.parametrize("kind", KINDS)
async def test_questions_to_the_gateway_reach_the_resolver(lab: Lab, pool: SlotPool, kind: socket.SocketKind) -> None:
    await lab.serve(RESOLVER, 53, namespace=lab.world)
    slot = await pool.acquire(EgressPolicy())
    guest = await lab.attach_guest(slot)
    assert await ask(slot.guest.gateway, 53, namespace=guest.namespace, kind=kind) == str(PUBLIC_HOST)


class TestTwoResolvers:
    @pytest.fixture
    def settings(self, settings: NetworkSettings) -> NetworkSettings:
        return settings.model_copy(update={"dns_servers": (RESOLVER, INTERNET)})

    async def test_a_repeated_question_reaches_the_other_one(self, lab: Lab, pool: SlotPool) -> None:
        servers = [await lab.serve(address, 53, namespace=lab.world) for address in (RESOLVER, INTERNET)]
        slot = await pool.acquire(EgressPolicy())
        guest = await lab.attach_guest(slot)
        for _ in range(2):
            await ask(slot.guest.gateway, 53, namespace=guest.namespace, kind=socket.SOCK_DGRAM)
        assert [len(server.seen) for server in servers] == [1, 1]


class TestHostResolver:
    @pytest.fixture
    def settings(self, settings: NetworkSettings) -> NetworkSettings:
        return settings.model_copy(update={"dns_servers": (PUBLIC_HOST,)})

    async def test_a_resolver_on_an_address_of_the_host_is_reached_but_no_other_port(
        self, lab: Lab, pool: SlotPool
    ) -> None:
        for port in (53, 54):
            await lab.serve(PUBLIC_HOST, port)
        slot = await pool.acquire(EgressPolicy())
        guest = await lab.attach_guest(slot)
        for kind in KINDS:
            assert await ask(slot.guest.gateway, 53, namespace=guest.namespace, kind=kind) == str(slot.address)
        with pytest.raises(ConnectionRefusedError):
            await ask(PUBLIC_HOST, 54, namespace=guest.namespace)


async def test_two_guests_with_the_same_address_are_told_apart(lab: Lab, pool: SlotPool) -> None:
    first, second = await pool.acquire(EgressPolicy()), await pool.acquire(EgressPolicy())
    guests = [await lab.attach_guest(slot) for slot in (first, second)]
    servers = [await lab.serve(first.guest.address, 80, namespace=guest.namespace) for guest in guests]
    await ask(second.address, 80)
    assert [len(server.seen) for server in servers] == [0, 1]


async def test_an_address_without_a_slot_fails_at_once_on_the_host(lab: Lab, pool: SlotPool) -> None:
    slot = await pool.acquire(EgressPolicy())
    with pytest.raises(ConnectionRefusedError):
        await ask(slot.address + 400, 80)
