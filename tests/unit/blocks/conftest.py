"""A client and a store over a fake block daemon."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentenv.base import aio
from agentenv.base.clock import SystemClock
from agentenv.blocks.blockd import BlockDaemonClient
from agentenv.blocks.places import Places
from agentenv.blocks.settings import BlocksSettings
from agentenv.blocks.store import LayeredStore
from support.fake_blockd import Bench, fake_blockd


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    # pytest's own directories have names too long for a socket.
    with tempfile.TemporaryDirectory(prefix="aenv-") as directory:
        places = Places(Path(directory))
        places.make()
        supervisor, clock = aio.Supervisor(), SystemClock()
        settings = BlocksSettings(reserve_mib=0, request_timeout_seconds=5)
        client = BlockDaemonClient(places.control, settings, supervisor, clock)
        async with fake_blockd(places.control, places.mount) as daemon:
            yield Bench(daemon, client, LayeredStore(client, places, settings), places)
            await client.disconnect()
            await supervisor.stop()
