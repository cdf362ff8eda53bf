"""Forks: one capture, children with lives of their own, and a parent that hardly notices."""

import asyncio

import pytest

from agentenv.base.errors import Invalid, Unavailable
from agentenv.base.ids import SandboxId
from agentenv.orchestrator.base import ForkedChild, Sandbox, SandboxState
from agentenv.orchestrator.errors import AdmissionRefused, SandboxNotFound
from support.clock import settle
from support.sandboxes import holds, put, running, state
from support.whole_node import Node, NodeFactory, a_request


def born(children: list[ForkedChild]) -> list[Sandbox]:
    sandboxes = [child.sandbox for child in children if child.sandbox is not None]
    assert len(sandboxes) == len(children)
    return sandboxes


async def test_children_have_what_the_parent_had_and_ids_and_tokens_of_their_own(node: Node) -> None:
    parent = await running(
        node, metadata={"k": "v"}, environment={"A": "1"}, allow_public_traffic=False, timeout_seconds=500
    )

    children = born(await node.service.fork(parent.id, count=3, timeout_seconds=20))

    everybody = [parent, *children]
    assert len({one.id for one in everybody}) == 4
    assert len({one.envd_token for one in everybody}) == 4
    assert len({one.traffic_token for one in everybody}) == 4
    for child in children:
        assert holds(node, child.id) == (7, 5)
        assert (child.metadata, child.template_id) == (parent.metadata, parent.template_id)
        assert (child.ends_at - child.started_at).total_seconds() == 20
    assert node.guest.tokens[1:] == [parent.envd_token] * 3
    assert all(setup.environment["A"] == "1" for setup in node.guest.initialised)
    assert (await node.service.get(parent.id)).ends_at == parent.ends_at


async def test_the_parent_is_captured_once_and_runs_on_before_the_children_start(node: Node) -> None:
    parent = await running(node)
    node.stops.hold("driver.restore")
    forking = asyncio.ensure_future(node.service.fork(parent.id, count=4, timeout_seconds=20))
    await node.stops.reached["driver.restore"].wait()

    assert state(node, parent) is SandboxState.RUNNING
    assert not node.driver.running[parent.id].is_stopped
    put(node, parent.id, 8, 6)
    node.stops.let_go("driver.restore")

    children = born(await forking)
    assert node.stops.passed.count("machine.capture") == 1
    assert [holds(node, child.id) for child in children] == [(7, 5)] * 4
    assert holds(node, parent.id) == (8, 6)


async def test_nothing_of_a_fork_is_left_but_its_children(node: Node) -> None:
    parent = await running(node)
    children = born(await node.service.fork(parent.id, count=2, timeout_seconds=20))

    assert node.repository.manifests == {}
    assert node.repository.under_way() == []
    await node.repository.collect()
    await node.service.pause(children[0].id)
    await node.service.connect(children[0].id, 100)
    assert holds(node, children[0].id) == (7, 5)

    for sandbox in [parent, *children]:
        await node.service.kill(sandbox.id)
    assert node.is_clean()
    assert node.repository.leases == {}


async def test_children_outlive_their_parent(node: Node) -> None:
    parent = await running(node)
    node.stops.hold("driver.restore")
    forking = asyncio.ensure_future(node.service.fork(parent.id, count=2, timeout_seconds=20))
    await node.stops.reached["driver.restore"].wait()
    await node.service.kill(parent.id)
    await node.repository.collect()
    node.stops.let_go("driver.restore")

    children = born(await forking)
    assert [holds(node, child.id) for child in children] == [(7, 5)] * 2


async def test_each_child_succeeds_or_fails_alone(make_node: NodeFactory) -> None:
    node: Node = await make_node(memory_mib=3 * 512)
    await node.service.start([])
    parent = await running(node)

    children = await node.service.fork(parent.id, count=4, timeout_seconds=20)

    assert [child.sandbox is not None for child in children] == [True, True, False, False]
    assert all(isinstance(child.error, AdmissionRefused) for child in children[2:])
    assert node.repository.leases.keys() == {one.id for one in node.fleet.book.all()}


async def test_children_start_in_bounded_parallel_and_none_is_refused_for_it(make_node: NodeFactory) -> None:
    node: Node = await make_node(starts=2, waiting_starts=1, sandboxes=20)
    await node.service.start([])
    parent = await running(node)
    node.stops.hold("driver.restore")
    forking = asyncio.ensure_future(node.service.fork(parent.id, count=16, timeout_seconds=20))
    await node.stops.reached["driver.restore"].wait()
    await settle()
    assert node.stops.passed.count("driver.restore") == 2
    node.stops.let_go("driver.restore")

    assert len(born(await forking)) == 16


@pytest.mark.parametrize("count", [0, -1, 17])
async def test_a_count_out_of_range_is_refused_before_anything_happens(node: Node, count: int) -> None:
    parent = await running(node)
    with pytest.raises(Invalid, match="count"):
        await node.service.fork(parent.id, count=count, timeout_seconds=20)
    assert "machine.capture" not in node.stops.passed


@pytest.mark.parametrize("place", ["machine.capture", "capture.finish", "repository.published", "repository.lease"])
async def test_a_fork_whose_capture_fails_leaves_the_parent_and_nothing_else(node: Node, place: str) -> None:
    parent = await running(node)
    node.stops.fail(place)

    with pytest.raises(Unavailable):
        await node.service.fork(parent.id, count=2, timeout_seconds=20)

    assert state(node, parent) is SandboxState.RUNNING
    assert not node.driver.running[parent.id].is_stopped
    assert list(node.driver.running) == [parent.id]
    assert node.repository.manifests == {}
    assert node.repository.under_way() == []
    assert node.repository.leases.keys() <= {parent.id}


async def test_a_fork_goes_on_when_its_caller_goes_away(node: Node) -> None:
    parent = await running(node)
    node.stops.hold("machine.capture")
    forking = asyncio.ensure_future(node.service.fork(parent.id, count=2, timeout_seconds=20))
    await node.stops.reached["machine.capture"].wait()
    forking.cancel()
    await settle()
    node.stops.let_go("machine.capture")
    while len(node.fleet.live) < 3:
        await asyncio.sleep(0.001)
    while node.repository.manifests:
        await asyncio.sleep(0.001)


async def test_a_fork_of_what_is_gone_is_not_found(node: Node) -> None:
    parent = await running(node)
    await node.service.kill(parent.id)
    for sandbox_id in (parent.id, SandboxId("i0000000000000000000")):
        with pytest.raises(SandboxNotFound):
            await node.service.fork(sandbox_id, count=1, timeout_seconds=20)


async def test_a_child_can_be_forked_and_snapshotted_like_any_other(node: Node) -> None:
    parent = await running(node)
    (child,) = born(await node.service.fork(parent.id, count=1, timeout_seconds=20))
    put(node, child.id, 9, 9)
    (grandchild,) = born(await node.service.fork(child.id, count=1, timeout_seconds=20))
    taken = await node.service.snapshot(grandchild.id, name=None)
    await node.repository.collect()

    made = await node.service.create(a_request(template=taken.snapshot_id))
    assert holds(node, made.id) == (9, 9)
    assert len(node.repository.manifests[taken.snapshot_id].memory_layers) == 3
