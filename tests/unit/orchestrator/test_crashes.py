"""A server that is killed at any step of any verb: the next one finishes or undoes it, and nothing is left over."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from agentenv.base.errors import AgentEnvError
from agentenv.base.process import ProcessIdentity
from agentenv.orchestrator.base import Sandbox, SandboxState
from agentenv.orchestrator.recovery import kept_slots
from agentenv.snapshots.base import SnapshotKind
from support.clock import settle
from support.sandboxes import holds, put, running
from support.whole_node import Node, NodeFactory, a_request

Scene = Callable[[Node], Awaitable[Sandbox]]
Action = Callable[[Node, Sandbox], Awaitable[object]]
FRESH, OLD = (7, 5), (1, 1)
ALL_STEPS = 200


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Let the processes of fake machines be alive and die; return the pids of those that are."""
    pids: set[int] = set()
    monkeypatch.setattr(ProcessIdentity, "is_alive", lambda identity: identity.pid in pids)
    monkeypatch.setattr(ProcessIdentity, "kill", lambda identity: pids.discard(identity.pid))
    return pids


async def fresh(node: Node) -> Sandbox:
    return await running(node, *FRESH)


async def resumed(node: Node) -> Sandbox:
    sandbox = await running(node, *OLD)
    await node.service.pause(sandbox.id)
    await node.service.connect(sandbox.id, 100)
    put(node, sandbox.id, *FRESH)
    return sandbox


async def paused(node: Node) -> Sandbox:
    sandbox = await running(node, *FRESH)
    await node.service.pause(sandbox.id)
    return sandbox


async def with_snapshot(node: Node) -> Sandbox:
    sandbox = await running(node, *OLD)
    await node.service.snapshot(sandbox.id, name="old")
    put(node, sandbox.id, *FRESH)
    return sandbox


SCENES: dict[str, tuple[Scene, Action, set[tuple[int, int] | None]]] = {
    "create": (fresh, lambda node, _: node.service.create(a_request()), {FRESH}),
    "pause": (fresh, lambda node, one: node.service.pause(one.id), {FRESH}),
    "pause again": (resumed, lambda node, one: node.service.pause(one.id), {FRESH}),
    "pause without memory": (
        fresh,
        lambda node, one: node.service.pause(one.id, with_memory=False),
        {FRESH, (0, FRESH[1])},
    ),
    "resume": (paused, lambda node, one: node.service.connect(one.id, 100), {FRESH}),
    "snapshot": (fresh, lambda node, one: node.service.snapshot(one.id, name="x"), {FRESH}),
    "fork": (fresh, lambda node, one: node.service.fork(one.id, count=2, timeout_seconds=100), {FRESH}),
    "rollback": (with_snapshot, lambda node, one: node.service.rollback(one.id, "old"), {FRESH, OLD}),
    "kill": (fresh, lambda node, one: node.service.kill(one.id), {FRESH, None}),
    "kill resumed": (resumed, lambda node, one: node.service.kill(one.id), {FRESH, OLD, None}),
    "kill paused": (paused, lambda node, one: node.service.kill(one.id), {FRESH, None}),
}


@pytest.mark.parametrize("name", SCENES)
async def test_a_kill_at_any_step_is_survived(name: str, make_node: NodeFactory, alive: set[int]) -> None:
    scene, action, outcomes = SCENES[name]
    for step in range(ALL_STEPS):
        node: Node = await make_node()
        _count_processes(node, alive)
        await node.service.start(await node.fleet.book.read())
        sandbox = await scene(node)
        node.stops.ends_at = len(node.stops.passed) + step
        acting = asyncio.ensure_future(action(node, sandbox))
        ended = asyncio.ensure_future(node.stops.ended.wait())
        await asyncio.wait((acting, ended), return_when=asyncio.FIRST_COMPLETED)
        if not node.stops.ended.is_set():
            ended.cancel()
            await acting
            break
        where = f"{name}, killed before {node.stops.passed[-1]} (step {step})"
        await _check_successor(await _succeed(node, make_node, alive), sandbox, outcomes, where)
    else:
        pytest.fail(f"{name} has more than {ALL_STEPS} steps")
    assert step > 1


async def _succeed(node: Node, make_node: NodeFactory, alive: set[int]) -> Node:
    successor: Node = await make_node(after=node)
    _count_processes(successor, alive)
    records = await successor.fleet.book.read()
    # What `main` does before the lifecycle is asked: monitors that no record names are ended.
    wanted = {record.handle.machine.process.pid for record in records if record.handle is not None}
    alive &= wanted
    kept_slots(records)
    await successor.service.start(records)
    await settle()
    return successor


async def _check_successor(node: Node, sandbox: Sandbox, outcomes: set[tuple[int, int] | None], where: str) -> None:
    _drop_dead(node)
    live = set(node.fleet.live)
    assert set(node.driver.running) == live, where
    assert set(node.blocks.disks) == live, where
    assert not any(machine.is_stopped for machine in node.driver.running.values()), where
    assert node.repository.under_way() == [], where
    assert set(node.repository.leases) <= live, where
    checkpoints = {record.checkpoint.snapshot_id for record in node.fleet.book.all() if record.checkpoint}
    hidden = {one.snapshot_id for one in node.repository.manifests.values() if one.kind is SnapshotKind.PAUSE}
    assert hidden == checkpoints, where
    assert set(await node.stored()) == {record.id for record in node.fleet.book.all()}, where
    await node.repository.collect()
    for record in node.fleet.book.all():
        assert record.state in {SandboxState.RUNNING, SandboxState.PAUSED}, where
        if record.state is SandboxState.PAUSED:
            await node.service.connect(record.id, 100)
    found = holds(node, sandbox.id) if node.fleet.book.find(sandbox.id) else None
    assert found in outcomes, where
    await _use_and_end(node, where)


async def _use_and_end(node: Node, where: str) -> None:
    """What came through a crash can be paused, resumed and ended like anything else."""
    for record in node.fleet.book.all():
        put(node, record.id, 41, 42)
        await node.service.pause(record.id)
        await node.repository.collect()
        await node.service.connect(record.id, 100)
        assert holds(node, record.id) == (41, 42), where
        await node.service.kill(record.id)
    for one in list(node.repository.manifests):
        await node.service.delete_snapshot(one)
    assert node.is_clean(), where
    assert await node.stored() == [], where


def _count_processes(node: Node, alive: set[int]) -> None:
    def born() -> ProcessIdentity:
        pid = next(_PIDS)
        alive.add(pid)
        return ProcessIdentity(pid, 1)

    node.driver.identities = iter(born, None)
    node.driver.forget = alive.discard


_PIDS = count(2**23)


def _drop_dead(node: Node) -> None:
    for name, machine in list(node.driver.running.items()):
        if not machine.handle.process.is_alive():
            del node.driver.running[name]


async def test_a_verb_that_fails_in_the_next_server_can_be_asked_again(make_node: NodeFactory, alive: set[int]) -> None:
    node: Node = await make_node()
    _count_processes(node, alive)
    await node.service.start([])
    sandbox = await paused(node)
    successor = await _succeed(node, make_node, alive)
    successor.stops.fail("driver.restore")
    with pytest.raises(AgentEnvError):
        await successor.service.connect(sandbox.id, 100)
    successor.stops.repair("driver.restore")

    assert (await successor.service.connect(sandbox.id, 100)).resumed


async def test_a_paused_sandbox_is_found_by_the_next_server(make_node: NodeFactory, alive: set[int]) -> None:
    node: Node = await make_node()
    _count_processes(node, alive)
    await node.service.start([])
    sandbox = await paused(node)
    await node.service.stop(detach=False)

    successor = await _succeed(node, make_node, alive)

    assert await successor.service.get(sandbox.id) == await node.service.get(sandbox.id)
    await successor.service.connect(sandbox.id, 100)
    assert holds(successor, sandbox.id) == FRESH


async def test_a_resumed_sandbox_whose_host_went_down_is_paused_where_it_was(
    make_node: NodeFactory, alive: set[int]
) -> None:
    node: Node = await make_node()
    _count_processes(node, alive)
    await node.service.start([])
    sandbox = await resumed(node)
    alive.clear()

    successor = await _succeed(node, make_node, alive)

    assert (await successor.service.get(sandbox.id)).state is SandboxState.PAUSED
    await successor.service.connect(sandbox.id, 100)
    assert holds(successor, sandbox.id) == OLD
