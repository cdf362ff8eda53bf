"""Pausing and resuming: what is kept, what is given back, and what a failure leaves."""

import asyncio

import pytest

from agentenv.base.errors import AgentEnvError, Unavailable
from agentenv.base.records import RecordsUnavailable
from agentenv.guest.errors import GuestUnreachable
from agentenv.orchestrator.base import OnTimeout, SandboxState
from agentenv.orchestrator.errors import AdmissionRefused, GuestWasUnresponsive, SandboxNotFound, VerbRefused
from agentenv.runtime.errors import GuestUnresponsive
from agentenv.snapshots.base import SnapshotKind
from agentenv.snapshots.errors import SnapshotDamaged
from agentenv.vmm.base import EndCause
from agentenv.vmm.errors import SnapshotUnfit
from support.clock import settle
from support.sandboxes import holds, running, state
from support.whole_node import Node, NodeFactory, a_request


async def test_a_pause_keeps_everything_and_gives_everything_back(node: Node) -> None:
    sandbox = await running(node)

    await node.service.pause(sandbox.id)

    assert state(node, sandbox) is SandboxState.PAUSED
    assert node.is_clean()
    assert node.fleet.admission.memory_mib == 0
    assert node.cut == [sandbox.id, sandbox.id]
    assert node.repository.under_way() == []
    assert node.repository.leases == {}
    (manifest,) = node.repository.manifests.values()
    assert (manifest.kind, manifest.sandbox_id, len(manifest.memory_layers)) == (SnapshotKind.PAUSE, sandbox.id, 1)


async def test_a_resume_goes_on_where_the_pause_ended(node: Node) -> None:
    sandbox = await running(node, memory=7, disk=5, environment={"A": "1"})
    await node.service.pause(sandbox.id)

    connected = await node.service.connect(sandbox.id, 100)

    assert (connected.resumed, connected.sandbox.id, connected.sandbox.envd_token) == (
        True,
        sandbox.id,
        sandbox.envd_token,
    )
    assert holds(node, sandbox.id) == (7, 5)
    assert node.driver.restored == [sandbox.id]
    assert node.guest.tokens == [None, sandbox.envd_token]
    assert node.guest.initialised[1].environment == {"FROM_IMAGE": "1", "A": "1"}
    assert (connected.sandbox.ends_at - node.clock.now()).total_seconds() == 100
    assert (await node.service.route(sandbox.id, 80)).generation == 3


async def test_each_capture_writes_what_changed_since_the_one_before(node: Node) -> None:
    sandbox = await running(node)
    for round_number in range(3):
        node.driver.running[sandbox.id].memory = node.blocks.contents[sandbox.id] = 10 * round_number
        await node.service.pause(sandbox.id)
        await node.service.connect(sandbox.id, 100)
        assert holds(node, sandbox.id) == (10 * round_number, 10 * round_number)
        await node.repository.collect()

    (manifest,) = node.repository.manifests.values()
    assert (len(manifest.memory_layers), len(manifest.disk_layers)) == (3, 4)


async def test_the_last_pause_is_kept_until_the_next_one_is_durable(node: Node) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    (first,) = node.repository.manifests
    await node.service.connect(sandbox.id, 100)
    assert list(node.repository.manifests) == [first]
    node.stops.fail("repository.published")
    with pytest.raises(Unavailable):
        await node.service.pause(sandbox.id)
    assert list(node.repository.manifests) == [first]

    node.stops.repair("repository.published")
    await node.service.pause(sandbox.id)
    assert first not in node.repository.manifests
    assert len(node.repository.manifests) == 1


async def test_pauses_at_once_are_one(node: Node) -> None:
    sandbox = await running(node)
    node.stops.hold("machine.capture")
    pauses = [asyncio.ensure_future(node.service.pause(sandbox.id)) for _ in range(3)]
    await node.stops.reached["machine.capture"].wait()
    node.stops.let_go("machine.capture")

    assert await asyncio.gather(*pauses) == [None] * 3
    assert node.stops.passed.count("machine.capture") == 1


async def test_a_pause_of_another_kind_finds_it_paused(node: Node) -> None:
    sandbox = await running(node)
    node.stops.hold("machine.capture")
    first = asyncio.ensure_future(node.service.pause(sandbox.id))
    await node.stops.reached["machine.capture"].wait()
    other = asyncio.ensure_future(node.service.pause(sandbox.id, with_memory=False))
    await settle()
    assert not other.done()
    node.stops.let_go("machine.capture")
    await first

    with pytest.raises(VerbRefused) as refused:
        await other
    assert refused.value.code == "sandbox_is_paused"


async def test_resumes_at_once_are_one_and_the_longest_life_counts(node: Node) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    node.stops.hold("driver.restore")
    resumes = [asyncio.ensure_future(node.service.connect(sandbox.id, seconds)) for seconds in (10, 200, 50)]
    await node.stops.reached["driver.restore"].wait()
    node.stops.let_go("driver.restore")

    connected = await asyncio.gather(*resumes)
    assert all(one.resumed for one in connected)
    assert node.driver.restored == [sandbox.id]
    assert (await node.service.get(sandbox.id)).ends_at == max(one.sandbox.ends_at for one in connected)


async def test_a_connect_while_pausing_waits_and_resumes(node: Node) -> None:
    sandbox = await running(node)
    node.stops.hold("machine.kill")
    pausing = asyncio.ensure_future(node.service.pause(sandbox.id))
    await node.stops.reached["machine.kill"].wait()
    connecting = asyncio.ensure_future(node.service.connect(sandbox.id, 100))
    await settle()
    assert not connecting.done()
    node.stops.let_go("machine.kill")
    await pausing

    assert (await connecting).resumed
    assert state(node, sandbox) is SandboxState.RUNNING


PAUSE_PLACES = [
    "repository.incoming",
    "machine.capture",
    "blocks.freeze",
    "capture.finish",
    "blocks.sealed",
    "repository.publish",
    "repository.published",
]


@pytest.mark.parametrize("place", PAUSE_PLACES)
async def test_a_pause_that_fails_lets_the_sandbox_run_on(node: Node, place: str) -> None:
    sandbox = await running(node, memory=7, disk=5, timeout_seconds=100)
    node.stops.fail(place)

    with pytest.raises(Unavailable):
        await node.service.pause(sandbox.id)

    assert state(node, sandbox) is SandboxState.RUNNING
    assert not node.driver.running[sandbox.id].is_stopped
    assert node.repository.under_way() == []
    assert node.repository.manifests == {}
    assert (await node.service.route(sandbox.id, 80)).sandbox.id == sandbox.id

    node.stops.repair(place)
    await node.service.pause(sandbox.id)
    await node.repository.collect()
    await node.service.connect(sandbox.id, 100)
    assert holds(node, sandbox.id) == (7, 5)


@pytest.mark.parametrize("place", PAUSE_PLACES)
async def test_a_kill_during_a_pause_wins(node: Node, place: str) -> None:
    sandbox = await running(node)
    node.stops.hold(place)
    pausing = asyncio.ensure_future(node.service.pause(sandbox.id))
    await node.stops.reached[place].wait()
    killing = asyncio.ensure_future(node.service.kill(sandbox.id))
    await settle()
    node.stops.let_go(place)

    await killing
    (outcome,) = await asyncio.gather(pausing, return_exceptions=True)
    assert isinstance(outcome, AgentEnvError | None)
    assert node.is_clean()
    assert node.repository.manifests == {}
    assert node.repository.under_way() == []
    assert node.repository.leases == {}
    assert await node.stored() == []
    with pytest.raises(SandboxNotFound):
        await node.service.get(sandbox.id)


async def test_a_pause_whose_record_cannot_be_written_is_undone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = await running(node)
    put = node.records.put
    node.stops.hold("repository.published")
    pausing = asyncio.ensure_future(node.service.pause(sandbox.id))
    await node.stops.reached["repository.published"].wait()

    async def refuse(*_: object) -> None:
        raise RecordsUnavailable("the disk is full")

    monkeypatch.setattr(node.records, "put", refuse)
    node.stops.let_go("repository.published")
    with pytest.raises(RecordsUnavailable):
        await pausing

    monkeypatch.setattr(node.records, "put", put)
    assert state(node, sandbox) is SandboxState.RUNNING
    assert not node.driver.running[sandbox.id].is_stopped
    assert node.repository.manifests == {}


RESUME_PLACES = ["repository.get", "repository.lease", "blocks.open_memory", "blocks.create", "driver.restore"]


@pytest.mark.parametrize("place", [*RESUME_PLACES, "guest.ready", "guest.init"])
async def test_a_resume_that_fails_leaves_it_paused_and_can_be_tried_again(node: Node, place: str) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    node.stops.fail(place)

    with pytest.raises(AgentEnvError):
        await node.service.connect(sandbox.id, 100)

    assert state(node, sandbox) is SandboxState.PAUSED
    assert node.is_clean()
    assert node.fleet.admission.memory_mib == 0
    assert node.repository.leases == {}

    node.stops.repair(place)
    assert (await node.service.connect(sandbox.id, 100)).resumed
    assert holds(node, sandbox.id) == (7, 5)


@pytest.mark.parametrize("place", [*RESUME_PLACES, "guest.ready"])
async def test_a_kill_during_a_resume_wins(node: Node, place: str) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    node.stops.hold(place)
    resuming = asyncio.ensure_future(node.service.connect(sandbox.id, 100))
    await node.stops.reached[place].wait()

    await node.service.kill(sandbox.id)

    await asyncio.gather(resuming, return_exceptions=True)
    assert node.is_clean()
    assert node.repository.manifests == {}
    assert await node.stored() == []


async def test_a_saved_machine_that_cannot_go_on_here_is_a_conflict_before_anything_is_taken(node: Node) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    node.driver.is_other = True
    node.stops.passed.clear()

    with pytest.raises(SnapshotUnfit):
        await node.service.connect(sandbox.id, 100)

    assert not {"network.acquire", "blocks.create", "blocks.open_memory"} & set(node.stops.passed)
    assert state(node, sandbox) is SandboxState.PAUSED


async def test_memory_is_counted_for_what_runs_only(make_node: NodeFactory) -> None:
    node: Node = await make_node(memory_mib=600)
    await node.service.start([])
    first = await running(node)
    with pytest.raises(AdmissionRefused):
        await node.service.create(a_request())
    await node.service.pause(first.id)
    await running(node)

    with pytest.raises(AdmissionRefused):
        await node.service.connect(first.id, 100)
    assert state(node, first) is SandboxState.PAUSED


async def test_a_paused_sandbox_can_be_deleted(node: Node) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)

    await node.service.kill(sandbox.id)

    assert node.repository.manifests == {}
    assert await node.stored() == []
    with pytest.raises(SandboxNotFound):
        await node.service.connect(sandbox.id, 10)


async def test_a_paused_sandbox_with_damaged_files_cannot_be_resumed_and_can_be_deleted(node: Node) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    node.repository.break_files()
    with pytest.raises(SnapshotDamaged):
        await node.service.connect(sandbox.id, 10)

    await node.service.kill(sandbox.id)

    assert await node.stored() == []


async def test_a_deletion_that_the_repository_refuses_is_done_and_the_next_server_finishes_it(
    node: Node, make_node: NodeFactory
) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    node.stops.fail("repository.delete")

    await node.service.kill(sandbox.id)
    with pytest.raises(SandboxNotFound):
        await node.service.get(sandbox.id)

    successor: Node = await make_node(after=node)
    await successor.service.start(await successor.fleet.book.read())
    assert successor.repository.manifests == {}
    assert await successor.stored() == []


async def test_a_pause_without_memory_boots_from_the_disk_at_the_resume(node: Node) -> None:
    sandbox = await running(node, memory=7, disk=5)
    await node.service.pause(sandbox.id, with_memory=False)
    (manifest,) = node.repository.manifests.values()
    assert (manifest.device_state, manifest.memory_layers, manifest.machine) == (None, (), None)

    await node.service.connect(sandbox.id, 100)

    assert holds(node, sandbox.id) == (0, 5)
    assert node.driver.restored == []
    assert node.guest.tokens == [None, None]


async def test_a_resume_without_memory_boots_from_the_disk(node: Node) -> None:
    sandbox = await running(node, memory=7, disk=5)
    await node.service.pause(sandbox.id)

    await node.service.connect(sandbox.id, 100, with_memory=False)

    assert holds(node, sandbox.id) == (0, 5)
    await node.service.pause(sandbox.id)
    (manifest,) = node.repository.manifests.values()
    assert len(manifest.memory_layers) == 1


async def test_a_guest_that_does_not_answer_is_paused_and_comes_back_by_a_boot_only(node: Node) -> None:
    sandbox = await running(node)
    node.stops.fail("guest.freeze", GuestUnreachable("no answer"))
    await node.service.pause(sandbox.id)
    assert (await node.service.get(sandbox.id)).pause is not None

    with pytest.raises(GuestWasUnresponsive):
        await node.service.connect(sandbox.id, 100)
    assert (await node.service.connect(sandbox.id, 100, with_memory=False)).resumed


@pytest.mark.parametrize("words", [{"needs_guest": True}, {"with_memory": False}])
async def test_a_pause_that_needs_the_guest_leaves_one_that_does_not_answer_running(
    node: Node, words: dict[str, bool]
) -> None:
    sandbox = await running(node)
    node.stops.fail("guest.freeze", GuestUnreachable("no answer"))

    with pytest.raises(GuestUnresponsive):
        await node.service.pause(sandbox.id, **words)
    assert state(node, sandbox) is SandboxState.RUNNING
    assert not node.driver.running[sandbox.id].is_stopped


async def test_expiry_pauses_by_default(node: Node) -> None:
    sandbox = await running(node, auto_pause=None, timeout_seconds=10)
    assert sandbox.on_timeout is OnTimeout.PAUSE

    await node.clock.advance(11)
    while state(node, sandbox) is not SandboxState.PAUSED:
        await asyncio.sleep(0.001)
    assert node.is_clean()


async def test_an_expiry_that_fails_is_tried_again_later(node: Node) -> None:
    sandbox = await running(node, auto_pause=True, timeout_seconds=10)
    node.stops.fail("repository.publish")
    await node.clock.advance(11)
    while "repository.publish" not in node.stops.passed or state(node, sandbox) is not SandboxState.RUNNING:
        await asyncio.sleep(0.001)

    node.stops.repair("repository.publish")
    await node.clock.advance(node.fleet.settings.pause_retry_seconds + 1)
    while state(node, sandbox) is not SandboxState.PAUSED:
        await asyncio.sleep(0.001)


async def test_an_expiry_that_waits_for_a_snapshot_respects_a_longer_life_given_meanwhile(node: Node) -> None:
    sandbox = await running(node, auto_pause=True, timeout_seconds=10)
    node.stops.hold("machine.capture")
    taking = asyncio.ensure_future(node.service.snapshot(sandbox.id, name=None))
    await node.stops.reached["machine.capture"].wait()
    await node.clock.advance(11)
    await node.service.set_timeout(sandbox.id, 500)
    node.stops.let_go("machine.capture")
    await taking
    await settle()

    assert state(node, sandbox) is SandboxState.RUNNING
    assert node.repository.under_way() == []


async def test_the_timeout_of_a_paused_sandbox_cannot_be_set(node: Node) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    for call in (node.service.set_timeout(sandbox.id, 5), node.service.refresh(sandbox.id, 5)):
        with pytest.raises(SandboxNotFound):
            await call


async def test_a_machine_that_dies_under_its_guest_lapses_to_the_checkpoint(node: Node) -> None:
    sandbox = await running(node, memory=7)
    await node.service.pause(sandbox.id)
    await node.service.connect(sandbox.id, 100)
    node.driver.running[sandbox.id].memory = 8

    node.driver.running[sandbox.id].die(EndCause.VMM_KILLED)
    while state(node, sandbox) is not SandboxState.PAUSED:
        await asyncio.sleep(0.001)

    assert node.is_clean()
    await node.service.connect(sandbox.id, 100)
    assert holds(node, sandbox.id)[0] == 7


async def test_a_guest_that_shuts_down_ends_its_sandbox_with_its_checkpoint(node: Node) -> None:
    sandbox = await running(node)
    await node.service.pause(sandbox.id)
    await node.service.connect(sandbox.id, 100)

    node.driver.running[sandbox.id].die(EndCause.GUEST_SHUTDOWN)
    while node.fleet.book.all():
        await asyncio.sleep(0.001)

    assert node.repository.manifests == {}
    assert await node.stored() == []
