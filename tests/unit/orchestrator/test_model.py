"""Verbs against each other, in orders that chance chooses, some of them failing: what is left is always whole."""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest

from agentenv.base.errors import AgentEnvError, Bug
from agentenv.base.ids import SandboxId
from agentenv.orchestrator.base import Sandbox, SandboxState
from agentenv.snapshots.base import SnapshotKind
from support.sandboxes import holds, put
from support.whole_node import Node, NodeFactory, a_request

Content = tuple[int, int]
ROUNDS = 8
CALLS_AT_ONCE = 5
# Giving back is not allowed to fail here: what it leaves then is the next start's, which other tests look at.
FAILING = 0.02


@dataclass
class Model:
    """What must be true of the sandboxes of a node."""

    node: Node
    chance: random.Random
    contents: dict[SandboxId, set[Content]] = field(default_factory=dict)
    snapshots: dict[str, set[Content]] = field(default_factory=dict)
    killed: set[SandboxId] = field(default_factory=set)
    number: int = 0

    async def round(self) -> None:
        """Write into what runs, then let several callers loose at once."""
        for sandbox_id in self.node.fleet.live:
            self.number += 1
            put(self.node, sandbox_id, self.number, self.number)
            self.contents[sandbox_id] = {(self.number, self.number)}
        calls = [self._call() for _ in range(CALLS_AT_ONCE)]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert not isinstance(outcome, Bug), outcome
            assert isinstance(outcome, AgentEnvError | None), repr(outcome)
        await self._check()

    async def _call(self) -> None:
        known = [record.id for record in self.node.fleet.book.all()]
        verbs = (
            ["create"]
            if not known
            else ["create", "pause", "pause", "connect", "connect", "snapshot", "fork", "rollback", "kill", "timeout"]
        )
        verb = self.chance.choice(verbs)
        for _ in range(self.chance.randrange(30)):
            await asyncio.sleep(0)
        await getattr(self, f"_{verb}")(*([self.chance.choice(known)] if verb != "create" else []))

    async def _create(self) -> None:
        template = self.chance.choice(["base", *self.snapshots])
        made = await self.node.service.create(a_request(template=template))
        self._born(made, self.snapshots.get(template, {(0, 0)}))

    async def _pause(self, sandbox_id: SandboxId) -> None:
        await self.node.service.pause(sandbox_id)

    async def _connect(self, sandbox_id: SandboxId) -> None:
        await self.node.service.connect(sandbox_id, 300)

    async def _timeout(self, sandbox_id: SandboxId) -> None:
        await self.node.service.set_timeout(sandbox_id, 500)

    async def _snapshot(self, sandbox_id: SandboxId) -> None:
        taken = await self.node.service.snapshot(sandbox_id, name=None)
        self.snapshots[taken.snapshot_id] = set(self.contents[sandbox_id])

    async def _fork(self, sandbox_id: SandboxId) -> None:
        for child in await self.node.service.fork(sandbox_id, count=2, timeout_seconds=300):
            if child.sandbox is not None:
                self._born(child.sandbox, self.contents[sandbox_id])

    async def _rollback(self, sandbox_id: SandboxId) -> None:
        if not self.snapshots:
            return
        target = self.chance.choice(list(self.snapshots))
        # Noted before: one that fails late leaves the sandbox paused at the snapshot.
        self.contents[sandbox_id] |= self.snapshots[target]
        await self.node.service.rollback(sandbox_id, target)

    async def _kill(self, sandbox_id: SandboxId) -> None:
        await self.node.service.kill(sandbox_id)
        self.killed.add(sandbox_id)

    def _born(self, sandbox: Sandbox, contents: set[Content]) -> None:
        self.contents.setdefault(sandbox.id, set()).update(contents)

    async def _check(self) -> None:
        node = self.node
        book = node.fleet.book.all()
        assert {record.state for record in book} <= {SandboxState.RUNNING, SandboxState.PAUSED}
        assert not self.killed & {record.id for record in book}
        live = {record.id for record in book if record.state is SandboxState.RUNNING}
        assert live == set(node.fleet.live) == set(node.driver.running) == set(node.blocks.disks)
        assert not any(machine.is_stopped for machine in node.driver.running.values())
        assert len(node.network.held) == len(live)
        assert node.fleet.admission.memory_mib == 512 * len(live)
        assert node.repository.under_way() == []
        assert set(node.repository.leases) <= live
        hidden = {one.snapshot_id for one in node.repository.manifests.values() if one.kind is SnapshotKind.PAUSE}
        assert hidden == {record.checkpoint.snapshot_id for record in book if record.checkpoint is not None}
        assert set(await node.stored()) == {record.id for record in book}
        await node.repository.collect()
        for sandbox_id in live:
            assert holds(node, sandbox_id) in self.contents[sandbox_id]


@pytest.mark.parametrize("seed", range(12))
async def test_verbs_against_each_other_leave_everything_whole(seed: int, make_node: NodeFactory) -> None:
    node: Node = await make_node(sandboxes=40, memory_mib=100_000, waiting_starts=100)
    await node.service.start([])
    model = Model(node, random.Random(seed))
    node.stops.chance = random.Random(-seed)
    for _ in range(ROUNDS):
        await model.round()

    node.stops.chance = None
    for record in node.fleet.book.all():
        if record.state is SandboxState.PAUSED:
            await node.service.connect(record.id, 300)
        assert holds(node, record.id) in model.contents[record.id]
    await _end_all(node)


@pytest.mark.parametrize("seed", range(12))
async def test_verbs_that_fail_by_chance_leave_everything_whole(seed: int, make_node: NodeFactory) -> None:
    node: Node = await make_node(sandboxes=40, memory_mib=100_000, waiting_starts=100)
    await node.service.start([])
    model = Model(node, random.Random(seed))
    node.stops.chance = random.Random(-seed)
    node.stops.failure_rate = FAILING
    node.stops.never_failing = {
        "machine.kill",
        "machine.resume",
        "network.release",
        "blocks.remove",
        "repository.delete",
        "repository.list",
        "repository.release",
        "records.put",
        "records.saved",
        "records.delete",
        "records.deleted",
    }
    for _ in range(ROUNDS):
        await model.round()
    node.stops.chance = None
    await _end_all(node)


async def _end_all(node: Node) -> None:
    waits: list[Awaitable[None]] = [node.service.kill(record.id) for record in node.fleet.book.all()]
    await asyncio.gather(*waits)
    assert node.is_clean()
    assert await node.stored() == []
    assert node.repository.leases == {}
