"""A lab and a pool in it, for every test."""

import os
from collections.abc import AsyncIterator
from ipaddress import IPv4Network
from typing import Any

import pytest

from agentenv.network.pool import SlotPool
from agentenv.network.settings import NetworkSettings
from support import network_lab


def make_settings(**changes: Any) -> NetworkSettings:
    defaults: dict[str, Any] = {
        "prefix": f"t{os.getpid() % 10_000_000}",
        "network": IPv4Network("10.211.0.0/16"),
        "max_slots": 64,
        "ready_slots_low": 0,
        "ready_slots_high": 0,
        "cool_down_seconds": 0,
        "dns_servers": (network_lab.RESOLVER,),
    }
    return NetworkSettings(**(defaults | changes))


@pytest.fixture
async def lab() -> AsyncIterator[network_lab.Lab]:
    async with network_lab.Lab() as made:
        yield made


@pytest.fixture
def settings() -> NetworkSettings:
    return make_settings()


@pytest.fixture
async def pool(lab: network_lab.Lab, settings: NetworkSettings) -> AsyncIterator[SlotPool]:
    made = SlotPool(settings)
    await made.start(frozenset())
    try:
        yield made
    finally:
        await made.stop()
