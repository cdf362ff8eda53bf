"""Snapshots: what they hold, their names, their tree, and sandboxes made from them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agentenv.base.errors import AgentEnvError, Unavailable
from agentenv.base.ids import SandboxId
from agentenv.images.errors import TemplateNotFound
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.errors import ImageNotDeletable, NameOfImage, SandboxNotFound, VerbRefused
from agentenv.snapshots.base import SnapshotQuery
from agentenv.snapshots.errors import NameInvalid, SnapshotNotFound
from support.clock import settle
from support.sandboxes import holds, put, running, state
from support.whole_node import Node, a_request


async def test_a_snapshot_holds_the_moment_and_the_sandbox_runs_on(node: Node) -> None:
    sandbox = await running(node, memory=7, disk=5)

    taken = await node.service.snapshot(sandbox.id, name=None)
    put(node, sandbox.id, 8, 6)

    assert state(node, sandbox) is SandboxState.RUNNING
    assert not node.driver.running[sandbox.id].is_stopped
    assert holds(node, sandbox.id) == (8, 6)
    made = await node.service.create(a_request(template=taken.snapshot_id))
    assert holds(node, made.id) == (7, 5)
    assert str(made.template_id) == taken.snapshot_id
    assert (made.memory_mib, made.vcpus) == (sandbox.memory_mib, sandbox.vcpus)
    assert made.envd_token != sandbox.envd_token
    assert node.guest.tokens[-1] == sandbox.envd_token


async def test_sandboxes_of_one_snapshot_are_apart_and_share_its_memory_image(node: Node) -> None:
    sandbox = await running(node)
    taken = await node.service.snapshot(sandbox.id, name="start")
    first, second = [await node.service.create(a_request(template="start")) for _ in range(2)]

    put(node, first.id, 100, 100)

    assert holds(node, second.id) == (7, 5)
    assert len(node.blocks.images) == 1
    assert first.template_name == "start"
    assert str(first.template_id) == taken.snapshot_id


async def test_the_environment_of_a_sandbox_goes_on_into_what_is_made_of_its_snapshot(node: Node) -> None:
    sandbox = await running(node, environment={"A": "1", "B": "1"})
    taken = await node.service.snapshot(sandbox.id, name=None)

    await node.service.create(a_request(template=taken.snapshot_id, environment={"B": "2"}))

    assert node.guest.initialised[-1].environment == {"FROM_IMAGE": "1", "A": "1", "B": "2"}


async def test_a_snapshot_outlives_its_sandbox_and_its_own_deletion_hurts_nobody(node: Node) -> None:
    sandbox = await running(node)
    taken = await node.service.snapshot(sandbox.id, name=None)
    await node.service.kill(sandbox.id)
    made = await node.service.create(a_request(template=taken.snapshot_id))

    await node.service.delete_snapshot(taken.snapshot_id)
    await node.repository.collect()

    with pytest.raises(SnapshotNotFound):
        await node.service.delete_snapshot(taken.snapshot_id)
    with pytest.raises(TemplateNotFound):
        await node.service.create(a_request(template=taken.snapshot_id))
    await node.service.pause(made.id)
    await node.repository.collect()
    await node.service.connect(made.id, 100)
    assert holds(node, made.id) == (7, 5)


async def test_a_name_goes_on_to_the_newest_snapshot(node: Node) -> None:
    sandbox = await running(node)
    first = await node.service.snapshot(sandbox.id, name="x")
    put(node, sandbox.id, 9, 9)
    second = await node.service.snapshot(sandbox.id, name="x")

    assert second.names == ("x:default",)
    assert (await node.service.get_snapshot("x")).snapshot_id == second.snapshot_id
    assert (await node.service.get_snapshot(first.snapshot_id)).snapshot_id == first.snapshot_id
    made = await node.service.create(a_request(template="x"))
    assert holds(node, made.id) == (9, 9)


@pytest.mark.parametrize(
    "name, error", [("base", NameOfImage), ("tbase", NameOfImage), ("a b", NameInvalid), ("", NameInvalid)]
)
async def test_a_name_that_cannot_be_given_is_refused_before_anything_is_captured(
    node: Node, name: str, error: type[Exception]
) -> None:
    sandbox = await running(node)

    with pytest.raises(error):
        await node.service.snapshot(sandbox.id, name=name)

    assert "machine.capture" not in node.stops.passed
    assert "blocks.freeze" not in node.stops.passed


async def test_snapshots_know_their_parents(node: Node) -> None:
    sandbox = await running(node)
    root = await node.service.snapshot(sandbox.id, name=None)
    await node.service.pause(sandbox.id)
    await node.service.connect(sandbox.id, 100)
    child = await node.service.snapshot(sandbox.id, name=None)
    other = await node.service.create(a_request(template=root.snapshot_id))
    cousin = await node.service.snapshot(other.id, name=None)

    assert (root.parent_id, child.parent_id, cousin.parent_id) == (None, root.snapshot_id, root.snapshot_id)
    tree = await node.service.snapshot_tree(child.snapshot_id)
    assert tree[0].snapshot_id == root.snapshot_id
    assert {one.snapshot_id for one in tree} == {root.snapshot_id, child.snapshot_id, cousin.snapshot_id}
    page = await node.service.find_snapshots(SnapshotQuery(sandbox_id=sandbox.id), after=None, limit=10)
    assert {one.snapshot_id for one in page.snapshots} == {root.snapshot_id, child.snapshot_id}


async def test_a_snapshot_after_a_snapshot_writes_what_changed(node: Node) -> None:
    sandbox = await running(node)
    await node.service.snapshot(sandbox.id, name=None)
    put(node, sandbox.id, 9, 9)
    second = await node.service.snapshot(sandbox.id, name=None)

    manifest = node.repository.manifests[second.snapshot_id]
    assert (len(manifest.memory_layers), len(manifest.disk_layers)) == (2, 3)
    made = await node.service.create(a_request(template=second.snapshot_id))
    assert holds(node, made.id) == (9, 9)


async def test_a_memory_of_many_layers_is_written_anew(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentenv.orchestrator.capturing._LONGEST_MEMORY_CHAIN", 3)
    sandbox = await running(node)
    lengths = []
    for number in range(5):
        put(node, sandbox.id, number, number)
        taken = await node.service.snapshot(sandbox.id, name=None)
        lengths.append(len(node.repository.manifests[taken.snapshot_id].memory_layers))
        made = await node.service.create(a_request(template=taken.snapshot_id))
        assert holds(node, made.id) == (number, number)
        await node.service.kill(made.id)

    assert lengths == [1, 2, 3, 1, 2]


async def test_a_snapshot_without_memory_boots(node: Node) -> None:
    sandbox = await running(node, memory=7, disk=5)

    taken = await node.service.snapshot(sandbox.id, name=None, with_memory=False)

    assert not taken.has_memory
    assert "guest.thaw" in node.stops.passed
    made = await node.service.create(a_request(template=taken.snapshot_id))
    assert holds(node, made.id) == (0, 5)
    await node.service.snapshot(sandbox.id, name=None)
    (newest,) = [one for one in node.repository.manifests.values() if one.snapshot_id != taken.snapshot_id]
    assert (len(newest.memory_layers), len(newest.disk_layers)) == (1, 3)


@pytest.mark.parametrize(
    "place", ["repository.incoming", "machine.capture", "capture.finish", "blocks.sealed", "repository.published"]
)
async def test_a_snapshot_that_fails_is_not_there_and_the_next_one_is_whole(node: Node, place: str) -> None:
    sandbox = await running(node, memory=7, disk=5)
    node.stops.fail(place)
    with pytest.raises(Unavailable):
        await node.service.snapshot(sandbox.id, name="x")
    assert node.repository.manifests == {}
    assert node.repository.under_way() == []
    assert state(node, sandbox) is SandboxState.RUNNING
    assert not node.driver.running[sandbox.id].is_stopped

    node.stops.repair(place)
    put(node, sandbox.id, 8, 6)
    taken = await node.service.snapshot(sandbox.id, name="x")
    await node.repository.collect()
    made = await node.service.create(a_request(template=taken.snapshot_id))
    assert holds(node, made.id) == (8, 6)


async def test_snapshots_that_are_asked_for_together_are_taken_one_after_the_other(node: Node) -> None:
    sandbox = await running(node)
    node.stops.hold("machine.capture")
    takings = [asyncio.ensure_future(node.service.snapshot(sandbox.id, name=f"n{number}")) for number in range(3)]
    await node.stops.reached["machine.capture"].wait()
    await settle()
    assert node.stops.passed.count("machine.capture") == 1
    node.stops.let_go("machine.capture")

    taken = await asyncio.gather(*takings)
    assert len({one.snapshot_id for one in taken}) == 3


async def test_a_pause_during_a_snapshot_waits_for_it(node: Node) -> None:
    sandbox = await running(node)
    node.stops.hold("machine.capture")
    taking = asyncio.ensure_future(node.service.snapshot(sandbox.id, name=None))
    await node.stops.reached["machine.capture"].wait()
    pausing = asyncio.ensure_future(node.service.pause(sandbox.id))
    await settle()
    node.stops.let_go("machine.capture")

    taken = await taking
    await pausing
    assert state(node, sandbox) is SandboxState.PAUSED
    assert taken.snapshot_id in node.repository.manifests


async def test_a_verb_that_waits_for_too_long_is_refused_with_the_state(node: Node) -> None:
    sandbox = await running(node)
    node.stops.hold("machine.capture")
    taking = asyncio.ensure_future(node.service.snapshot(sandbox.id, name=None))
    await node.stops.reached["machine.capture"].wait()
    pausing = asyncio.ensure_future(node.service.pause(sandbox.id))
    await node.clock.advance(node.fleet.settings.verb_wait_seconds + 1)

    with pytest.raises(VerbRefused) as refused:
        await pausing
    assert refused.value.code == "sandbox_is_snapshotting"
    node.stops.let_go("machine.capture")
    await taking


@pytest.mark.parametrize("verb", ["snapshot", "fork", "rollback"])
async def test_a_paused_sandbox_is_not_captured(node: Node, verb: str) -> None:
    sandbox = await running(node)
    taken = await node.service.snapshot(sandbox.id, name=None)
    await node.service.pause(sandbox.id)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "snapshot": lambda: node.service.snapshot(sandbox.id, name=None),
        "fork": lambda: node.service.fork(sandbox.id, count=1, timeout_seconds=5),
        "rollback": lambda: node.service.rollback(sandbox.id, taken.snapshot_id),
    }
    with pytest.raises(VerbRefused) as refused:
        await calls[verb]()
    assert refused.value.code == "sandbox_is_paused"


async def test_what_a_paused_sandbox_is_made_of_is_nobodys_snapshot(node: Node) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    (hidden,) = node.repository.manifests

    for call in (node.service.get_snapshot, node.service.delete_snapshot, node.service.snapshot_tree):
        with pytest.raises(SnapshotNotFound):
            await call(hidden)
    with pytest.raises(TemplateNotFound):
        await node.service.create(a_request(template=hidden))
    page = await node.service.find_snapshots(SnapshotQuery(), after=None, limit=10)
    assert page.snapshots == ()


async def test_an_image_cannot_be_deleted_as_a_snapshot(node: Node) -> None:
    with pytest.raises(ImageNotDeletable):
        await node.service.delete_snapshot("base")


async def test_a_kill_during_a_snapshot_wins(node: Node) -> None:
    sandbox = await running(node)
    node.stops.hold("capture.finish")
    taking = asyncio.ensure_future(node.service.snapshot(sandbox.id, name=None))
    await node.stops.reached["capture.finish"].wait()

    await node.service.kill(sandbox.id)

    (outcome,) = await asyncio.gather(taking, return_exceptions=True)
    assert isinstance(outcome, AgentEnvError)
    assert node.is_clean()
    assert node.repository.manifests == {}
    assert node.repository.under_way() == []


async def test_a_snapshot_of_nothing_is_not_found(node: Node) -> None:
    with pytest.raises(SandboxNotFound):
        await node.service.snapshot(SandboxId("i0000000000000000000"), name=None)
