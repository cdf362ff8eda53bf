"""A node of fakes: the real service, launcher and records, over mechanisms that a test can stop and fail."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from agentenv.base import aio
from agentenv.base.ids import SandboxId
from agentenv.base.records import Records
from agentenv.guest.base import BootFiles
from agentenv.guest.client import GuestClient
from agentenv.orchestrator.admission import Admission, Limits
from agentenv.orchestrator.base import CreateRequest
from agentenv.orchestrator.deadlines import Deadlines
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.record import Book
from agentenv.orchestrator.service import Service
from agentenv.orchestrator.settings import OrchestratorSettings
from agentenv.runtime.launcher import Launcher
from agentenv.runtime.settings import RuntimeSettings
from support.clock import FakeClock, settle
from support.node import FakeBlocks, FakeCatalogue, FakeDriver, FakeGuest, FakeNetwork
from support.repository import FakeRepository
from support.stops import Stops

RETRY_AFTER_SECONDS = 7


@dataclass
class Node:
    """One server's worth of objects."""

    service: Service
    fleet: Fleet
    records: Records
    clock: FakeClock
    stops: Stops
    network: FakeNetwork
    blocks: FakeBlocks
    driver: FakeDriver
    guest: FakeGuest
    cut: list[SandboxId]
    directory: Path
    repository: FakeRepository

    def is_clean(self) -> bool:
        """Return whether nothing is held any more."""
        directories = list(self.directory.iterdir()) if self.directory.exists() else []
        return not (self.network.held or self.blocks.disks or self.driver.running or directories)

    async def stored(self) -> list[str]:
        """Return the ids of the sandboxes that a restart would know."""
        return [key for key, _ in await self.records.all("sandbox")]


class WatchedRecords(Records):
    """Records whose writes a test can stop at."""

    def __init__(self, path: Path, stops: Stops) -> None:
        super().__init__(path)
        self._stops = stops

    async def put(self, kind: str, key: str, document: dict[str, Any]) -> None:
        await self._stops.pass_by("records.put")
        await super().put(kind, key, document)
        await self._stops.pass_by("records.saved")

    async def delete(self, kind: str, key: str) -> None:
        await self._stops.pass_by("records.delete")
        await super().delete(kind, key)
        await self._stops.pass_by("records.deleted")


NodeFactory = Callable[..., Any]


@pytest.fixture
async def make_node(tmp_path: Path) -> AsyncIterator[NodeFactory]:
    """Return a function that builds a node on the same records each time: a second call is the next server."""
    opened: list[Node] = []

    async def make(*, after: Node | None = None, **limits: int) -> Node:
        clock, stops = FakeClock(), Stops()
        network, blocks, driver, guest = FakeNetwork(stops), FakeBlocks(stops), FakeDriver(stops), FakeGuest(stops)
        repository = FakeRepository(stops, tmp_path / "repository")
        blocks.directory = tmp_path / "blocks"
        blocks.directory.mkdir(exist_ok=True)
        if after is not None:
            _inherit(after, clock, blocks, driver, repository)
        launcher = Launcher(
            directory=tmp_path / "sandboxes",
            network=network,
            blocks=blocks,
            driver=driver,
            guest=cast("GuestClient", guest),
            boot_files=BootFiles(Path("/fake/kernel"), Path("/fake/initramfs")),
            settings=RuntimeSettings(),
            clock=clock,
        )
        cut: list[SandboxId] = []
        records = WatchedRecords(tmp_path / "state.db", stops)
        await records.open()
        fleet = Fleet(
            book=Book(records),
            launcher=launcher,
            catalogue=FakeCatalogue(),
            repository=repository,
            admission=Admission(
                Limits(
                    sandboxes=limits.get("sandboxes", 10),
                    memory_mib=limits.get("memory_mib", 10_000),
                    waiting_starts=limits.get("waiting_starts", 10),
                    retry_after_seconds=RETRY_AFTER_SECONDS,
                )
            ),
            deadlines=Deadlines(clock, at_once=2),
            starts=asyncio.Semaphore(limits.get("starts", 4)),
            supervisor=aio.Supervisor(clock),
            clock=clock,
            settings=OrchestratorSettings(max_timeout_seconds=1000),
            cut=cut.append,
        )
        node = Node(
            service=Service(fleet),
            fleet=fleet,
            records=records,
            clock=clock,
            stops=stops,
            network=network,
            blocks=blocks,
            driver=driver,
            guest=guest,
            cut=cut,
            directory=tmp_path / "sandboxes",
            repository=repository,
        )
        opened.append(node)
        return node

    yield make
    for node in opened:
        node.stops.thaw()
    await settle()
    for node in opened:
        await node.fleet.supervisor.stop()
        await node.records.close()


def _inherit(after: Node, clock: FakeClock, blocks: FakeBlocks, driver: FakeDriver, repository: FakeRepository) -> None:
    """Let a new server find what an earlier one, that was killed, has left outside of its process."""
    clock.elapsed = after.clock.elapsed
    blocks.disks, blocks.contents, blocks.stacks = (
        dict(after.blocks.disks),
        dict(after.blocks.contents),
        {name: list(stack) for name, stack in after.blocks.stacks.items()},
    )
    driver.running = dict(after.driver.running)
    repository.manifests = dict(after.repository.manifests)
    repository.owners = dict(after.repository.owners)
    repository.leases = {holder: set(digests) for holder, digests in after.repository.leases.items()}


@pytest.fixture
async def node(make_node: NodeFactory) -> Node:
    """Return a started node with nothing on it."""
    made: Node = await make_node()
    await made.service.start([])
    return made


def a_request(**words: Any) -> CreateRequest:
    """Return a request for the base template, with what a test cares about changed."""
    defaults: dict[str, Any] = {"template": "base", "timeout_seconds": 300, "auto_pause": False}
    return CreateRequest(**(defaults | words))
