"""Rollbacks: in place, to snapshots of its own lineage, and never to nothing."""

import asyncio

import pytest

from agentenv.base.errors import AgentEnvError, Unavailable
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.errors import NotOfItsLineage
from agentenv.snapshots.errors import SnapshotNotFound
from agentenv.vmm.errors import SnapshotUnfit
from support.sandboxes import holds, put, running, state
from support.whole_node import Node, a_request


async def test_a_rollback_makes_the_sandbox_what_it_was(node: Node) -> None:
    sandbox = await running(node, memory=7, disk=5, timeout_seconds=300)
    taken = await node.service.snapshot(sandbox.id, name="good")
    put(node, sandbox.id, 99, 99)

    back = await node.service.rollback(sandbox.id, "good")

    assert (back.id, back.envd_token, back.state) == (sandbox.id, sandbox.envd_token, SandboxState.RUNNING)
    assert holds(node, sandbox.id) == (7, 5)
    assert back.ends_at == sandbox.ends_at
    assert len(node.driver.running) == 1
    next_one = await node.service.snapshot(sandbox.id, name=None)
    assert next_one.parent_id == taken.snapshot_id


async def test_a_rollback_can_go_to_an_ancestor_of_another_sandbox(node: Node) -> None:
    first = await running(node)
    root = await node.service.snapshot(first.id, name=None)
    second = await node.service.create(a_request(template=root.snapshot_id))
    await node.service.snapshot(second.id, name=None)

    await node.service.rollback(second.id, root.snapshot_id)

    assert holds(node, second.id) == (7, 5)


async def test_a_snapshot_of_another_lineage_is_refused(node: Node) -> None:
    sandbox, stranger = await running(node), await running(node)
    foreign = await node.service.snapshot(stranger.id, name=None)

    with pytest.raises(NotOfItsLineage):
        await node.service.rollback(sandbox.id, foreign.snapshot_id)
    with pytest.raises(SnapshotNotFound):
        await node.service.rollback(sandbox.id, "nothing")
    assert holds(node, sandbox.id) == (7, 5)
    assert state(node, sandbox) is SandboxState.RUNNING


async def test_what_cannot_go_on_here_is_refused_while_the_present_still_runs(node: Node) -> None:
    sandbox = await running(node)
    taken = await node.service.snapshot(sandbox.id, name=None)
    put(node, sandbox.id, 8, 8)
    node.driver.is_other = True

    with pytest.raises(SnapshotUnfit):
        await node.service.rollback(sandbox.id, taken.snapshot_id)

    assert holds(node, sandbox.id) == (8, 8)
    assert list(node.repository.manifests) == [taken.snapshot_id]


@pytest.mark.parametrize("place", ["repository.stack", "repository.publish", "repository.published"])
async def test_a_rollback_that_fails_early_changes_nothing(node: Node, place: str) -> None:
    sandbox = await running(node)
    taken = await node.service.snapshot(sandbox.id, name=None)
    put(node, sandbox.id, 8, 8)
    node.stops.fail(place)

    with pytest.raises(Unavailable):
        await node.service.rollback(sandbox.id, taken.snapshot_id)

    assert state(node, sandbox) is SandboxState.RUNNING
    assert holds(node, sandbox.id) == (8, 8)
    assert list(node.repository.manifests) == [taken.snapshot_id]


@pytest.mark.parametrize("place", ["blocks.create", "blocks.open_memory", "driver.restore", "guest.ready"])
async def test_a_rollback_that_fails_late_leaves_it_paused_at_the_snapshot(node: Node, place: str) -> None:
    sandbox = await running(node)
    taken = await node.service.snapshot(sandbox.id, name=None)
    put(node, sandbox.id, 8, 8)
    node.stops.fail(place)

    with pytest.raises(AgentEnvError):
        await node.service.rollback(sandbox.id, taken.snapshot_id)

    assert state(node, sandbox) is SandboxState.PAUSED
    assert node.is_clean()
    assert node.fleet.admission.memory_mib == 0
    await node.service.delete_snapshot(taken.snapshot_id)
    await node.repository.collect()
    node.stops.repair(place)
    await node.service.connect(sandbox.id, 100)
    assert holds(node, sandbox.id) == (7, 5)


async def test_after_a_rollback_the_last_pause_is_not_what_it_falls_back_to(node: Node) -> None:
    sandbox = await running(node, memory=1)
    taken = await node.service.snapshot(sandbox.id, name=None)
    put(node, sandbox.id, 2, 2)
    await node.service.pause(sandbox.id)
    await node.service.connect(sandbox.id, 100)
    await node.service.rollback(sandbox.id, taken.snapshot_id)
    (hidden,) = [one for one in node.repository.manifests if one != taken.snapshot_id]

    await node.service.pause(sandbox.id)
    assert hidden not in node.repository.manifests
    await node.service.connect(sandbox.id, 100)
    assert holds(node, sandbox.id)[0] == 1


async def test_a_kill_during_a_rollback_wins(node: Node) -> None:
    sandbox = await running(node)
    taken = await node.service.snapshot(sandbox.id, name=None)
    for place in ("machine.kill", "driver.restore"):
        node.stops.hold(place)
    rolling = asyncio.ensure_future(node.service.rollback(sandbox.id, taken.snapshot_id))
    await node.stops.reached["machine.kill"].wait()
    node.stops.let_go("machine.kill")
    await node.stops.reached["driver.restore"].wait()

    await node.service.kill(sandbox.id)

    await asyncio.gather(rolling, return_exceptions=True)
    assert node.is_clean()
    assert list(node.repository.manifests) == [taken.snapshot_id]
    assert await node.stored() == []
