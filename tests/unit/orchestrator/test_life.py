"""What happens to a sandbox after its creation: kill, expiry, its machine's own end, and the next server."""

import asyncio
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agentenv.base import metrics
from agentenv.base.errors import Invalid
from agentenv.base.ids import SandboxId
from agentenv.base.records import RecordsUnavailable
from agentenv.orchestrator.base import ListQuery, Order, SandboxState
from agentenv.orchestrator.errors import SandboxNotFound, SandboxNotRoutable
from agentenv.orchestrator.recovery import kept_slots
from agentenv.vmm.base import EndCause
from support.clock import START, settle
from support.node import dead_process
from support.whole_node import Node, NodeFactory, a_request

UNKNOWN = SandboxId("i0000000000000000000")


async def test_kill_gives_everything_back_and_a_second_one_finds_nothing(node: Node) -> None:
    sandbox = await node.service.create(a_request())

    await node.service.kill(sandbox.id)

    assert node.is_clean()
    assert await node.stored() == []
    with pytest.raises(SandboxNotFound):
        await node.service.kill(sandbox.id)


async def test_two_kills_at_once_are_one(node: Node) -> None:
    sandbox = await node.service.create(a_request())
    node.stops.hold("machine.kill")
    kills = [asyncio.ensure_future(node.service.kill(sandbox.id)) for _ in range(2)]
    await node.stops.reached["machine.kill"].wait()
    node.stops.let_go("machine.kill")

    assert await asyncio.gather(*kills) == [None, None]


async def test_a_sandbox_that_is_being_killed_is_not_routed_to(node: Node) -> None:
    sandbox = await node.service.create(a_request())
    assert (await node.service.route(sandbox.id, 80)).port == 80
    node.stops.hold("machine.kill")
    killing = asyncio.ensure_future(node.service.kill(sandbox.id))
    await node.stops.reached["machine.kill"].wait()

    with pytest.raises(SandboxNotRoutable):
        await node.service.route(sandbox.id, 80)
    with pytest.raises(SandboxNotFound):
        await node.service.get(sandbox.id)
    assert node.cut == [sandbox.id]

    node.stops.let_go("machine.kill")
    await killing


async def test_a_kill_whose_record_cannot_be_erased_is_done_and_the_next_server_forgets_it(
    node: Node, make_node: NodeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await node.service.create(a_request())

    async def refuse(*_: object) -> None:
        raise RecordsUnavailable("the disk is full")

    record = node.fleet.book.get(sandbox.id)
    with monkeypatch.context() as patch:
        patch.setattr(node.records, "delete", refuse)
        await node.service.kill(sandbox.id)
    assert node.is_clean()
    assert await node.stored() == [sandbox.id]

    assert record.handle is not None
    ended = replace(record.handle.machine, process=dead_process())
    successor = await make_node()
    await successor.service.start([replace(record, handle=replace(record.handle, machine=ended))])
    assert await successor.stored() == []


async def test_an_expired_sandbox_is_ended(node: Node) -> None:
    sandbox = await node.service.create(a_request(timeout_seconds=10))

    await node.clock.advance(9.9)
    assert (await node.service.get(sandbox.id)).state is SandboxState.RUNNING

    await node.clock.advance(0.2)
    await _until_clean(node)
    with pytest.raises(SandboxNotFound):
        await node.service.get(sandbox.id)


async def test_many_that_expire_together_are_ended_in_bounded_parallel(node: Node) -> None:
    for _ in range(8):
        await node.service.create(a_request(timeout_seconds=10))
    node.stops.hold("machine.kill")

    await node.clock.advance(11)
    await node.stops.reached["machine.kill"].wait()
    while len([record for record in node.fleet.book.all() if record.sandbox.state is SandboxState.STOPPING]) < 2:
        await asyncio.sleep(0.001)
    await settle()
    assert len(node.driver.running) == 8
    assert sum(record.sandbox.state is SandboxState.STOPPING for record in node.fleet.book.all()) == 2

    node.stops.let_go("machine.kill")
    await _until_clean(node)


async def test_set_timeout_shortens_and_lengthens(node: Node) -> None:
    sandbox = await node.service.create(a_request(timeout_seconds=10))
    await node.service.set_timeout(sandbox.id, 2)
    await node.service.set_timeout(sandbox.id, 100)

    await node.clock.advance(50)
    assert (await node.service.get(sandbox.id)).ends_at == START + timedelta(seconds=100)

    await node.service.set_timeout(sandbox.id, 0)
    await node.clock.advance(0)
    await _until_clean(node)


async def test_connect_and_refresh_only_ever_extend(node: Node) -> None:
    sandbox = await node.service.create(a_request(timeout_seconds=100))

    shorter = await node.service.connect(sandbox.id, 10)
    assert (shorter.sandbox.ends_at, shorter.resumed) == (sandbox.ends_at, False)
    longer = await node.service.connect(sandbox.id, 200)
    assert longer.sandbox.ends_at == START + timedelta(seconds=200)
    await node.service.refresh(sandbox.id, 50)
    assert (await node.service.get(sandbox.id)).ends_at == START + timedelta(seconds=200)


@pytest.mark.parametrize("seconds", [-1, 1001])
async def test_a_timeout_out_of_range_is_refused(node: Node, seconds: int) -> None:
    sandbox = await node.service.create(a_request())

    with pytest.raises(Invalid, match="timeout"):
        await node.service.set_timeout(sandbox.id, seconds)
    with pytest.raises(Invalid, match="timeout"):
        await node.service.connect(sandbox.id, seconds)


async def test_verbs_on_an_unknown_sandbox_find_nothing(node: Node) -> None:
    for call in (
        node.service.get(UNKNOWN),
        node.service.kill(UNKNOWN),
        node.service.connect(UNKNOWN, 5),
        node.service.set_timeout(UNKNOWN, 5),
        node.service.refresh(UNKNOWN, 5),
        node.service.metrics(UNKNOWN, None, None),
    ):
        with pytest.raises(SandboxNotFound, match=UNKNOWN):
            await call


async def test_a_machine_that_ends_by_itself_takes_its_sandbox_with_it(node: Node) -> None:
    sandbox = await node.service.create(a_request())

    node.driver.running[sandbox.id].die(EndCause.GUEST_SHUTDOWN)
    await _until_clean(node)

    assert await node.stored() == []
    with pytest.raises(SandboxNotFound):
        await node.service.get(sandbox.id)


async def test_find_filters_and_orders(node: Node) -> None:
    made = []
    for number in range(3):
        made.append(await node.service.create(a_request(metadata={"n": str(number), "all": "x"})))
        await node.clock.advance(1)

    async def found(**words: object) -> list[str]:
        return [sandbox.id for sandbox in await node.service.find(ListQuery(**words))]  # type: ignore[arg-type]

    ids = [sandbox.id for sandbox in made]
    assert await found() == ids[::-1]
    assert await found(order=Order.ASCENDING) == ids
    assert await found(metadata={"n": "1", "all": "x"}) == [ids[1]]
    assert await found(metadata={"n": "1", "all": "y"}) == []
    assert await found(started_after=made[1].started_at, order=Order.ASCENDING) == ids[1:]
    assert await found(template="base", order=Order.ASCENDING) == ids
    assert await found(template="tbase", order=Order.ASCENDING) == ids
    assert await found(template="other") == []
    assert await found(states=frozenset({SandboxState.PAUSED})) == []


async def test_stop_pauses_everything_that_runs_and_ends_what_is_being_made(node: Node) -> None:
    made = [await node.service.create(a_request()) for _ in range(5)]
    node.stops.hold("guest.ready")
    creating = asyncio.ensure_future(node.service.create(a_request()))
    await node.stops.reached["guest.ready"].wait()

    await node.service.stop(detach=False)

    assert node.is_clean()
    assert sorted(await node.stored()) == sorted(sandbox.id for sandbox in made)
    assert {record.state for record in node.fleet.book.all()} == {SandboxState.PAUSED}
    await asyncio.gather(creating, return_exceptions=True)


async def test_a_sandbox_that_is_gone_before_its_turn_at_a_stop_is_no_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await node.service.create(a_request())
    record = node.fleet.book.get(sandbox.id)
    await node.service.kill(sandbox.id)
    monkeypatch.setattr(node.fleet.book, "all", lambda: [record])

    with capture_logs() as logged:
        await node.service.stop(detach=False)

    assert [line["event"] for line in logged if line["log_level"] == "error"] == []


async def test_what_ends_while_sandboxes_are_left_behind_does_not_disturb_the_others(node: Node) -> None:
    first = await node.service.create(a_request())
    second = await node.service.create(a_request(timeout_seconds=10))
    node.stops.hold("machine.detach")
    stopping = asyncio.ensure_future(node.service.stop(detach=True))
    await node.stops.reached["machine.detach"].wait()

    node.driver.running[first.id].die(EndCause.GUEST_SHUTDOWN)
    await node.clock.advance(11)
    node.stops.let_go("machine.detach")

    assert await stopping == {0, 1}
    assert sorted(node.driver.detached) == sorted((first.id, second.id))
    assert sorted(await node.stored()) == sorted((first.id, second.id))


async def test_a_server_that_leaves_its_sandboxes_finishes_a_kill_first(node: Node) -> None:
    killed = await node.service.create(a_request())
    kept = await node.service.create(a_request())
    node.stops.hold("machine.kill")
    killing = asyncio.ensure_future(node.service.kill(killed.id))
    await node.stops.reached["machine.kill"].wait()
    stopping = asyncio.ensure_future(node.service.stop(detach=True))
    await settle()
    assert not stopping.done()

    node.stops.let_go("machine.kill")

    assert await stopping == {1}
    assert killing.done()
    assert await node.stored() == [kept.id]


async def test_the_next_server_adopts_what_runs(node: Node, make_node: NodeFactory) -> None:
    sandbox = await node.service.create(a_request(timeout_seconds=100, idempotency_key="k"))
    await node.service.stop(detach=True)
    assert node.driver.detached == [sandbox.id]

    successor = await make_node()
    successor.blocks.disks = node.blocks.disks
    records = await successor.fleet.book.read()
    assert kept_slots(records) == {0}
    await successor.service.start(records)

    assert await successor.service.get(sandbox.id) == sandbox
    assert (await successor.service.route(sandbox.id, 80)).host is not None
    assert (await successor.service.create(a_request(timeout_seconds=100, idempotency_key="k"))).id == sandbox.id
    await successor.clock.advance(101)
    await _until_clean(successor)
    assert await successor.stored() == []


async def test_the_next_server_forgets_what_has_ended_and_collects_the_rest(node: Node, make_node: NodeFactory) -> None:
    sandbox = await node.service.create(a_request())
    record = node.fleet.book.get(sandbox.id)
    assert record.handle is not None
    ended = replace(record.handle.machine, process=dead_process())
    await node.fleet.book.save(replace(record, handle=replace(record.handle, machine=ended)))

    successor = await make_node()
    successor.blocks.disks = dict(node.blocks.disks)
    records = await successor.fleet.book.read()
    assert kept_slots(records) == frozenset()
    await successor.service.start(records)

    assert successor.is_clean()
    assert await successor.stored() == []


@pytest.mark.parametrize("place", ["network.adopt", "driver.adopt"])
async def test_a_sandbox_that_is_not_whole_any_more_is_not_adopted(
    node: Node, make_node: NodeFactory, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await node.service.create(a_request())
    await node.service.stop(detach=True)
    killed: list[int] = []
    monkeypatch.setattr("agentenv.base.process.ProcessIdentity.kill", lambda identity: killed.append(identity.pid))

    successor = await make_node()
    successor.blocks.disks = dict(node.blocks.disks)
    successor.stops.fail(place)
    await successor.service.start(await successor.fleet.book.read())

    assert set(killed) == {os.getpid()}
    assert successor.is_clean()
    assert await successor.stored() == []
    with pytest.raises(SandboxNotFound):
        await successor.service.get(sandbox.id)


async def test_a_process_that_does_not_look_like_its_monitor_any_more_is_ended(
    node: Node, make_node: NodeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await node.service.create(a_request())
    await node.service.stop(detach=True)
    killed: list[int] = []
    monkeypatch.setattr("agentenv.base.process.ProcessIdentity.kill", lambda identity: killed.append(identity.pid))

    successor = await make_node()
    successor.driver.unrecognised.add(sandbox.id)
    await successor.service.start(await successor.fleet.book.read())

    assert set(killed) == {os.getpid()}
    assert successor.is_clean()


async def test_a_leftover_that_cannot_be_removed_does_not_keep_a_server_from_starting(
    make_node: NodeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await make_node()
    (node.directory / "i0000000000000000000").mkdir(parents=True)

    def refuse(_path: Path) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("agentenv.base.trees.remove", refuse)
    await node.service.start([])

    assert (await node.service.create(a_request())).state is SandboxState.RUNNING


async def test_metrics_are_read_at_once_when_none_are_fresh(node: Node) -> None:
    sandbox = await node.service.create(a_request())

    (reading,) = await node.service.metrics(sandbox.id, None, None)
    assert reading.memory_total == 100
    assert await node.service.metrics(sandbox.id, 5, 10) == []


async def test_what_operators_watch_follows_the_sandboxes(node: Node) -> None:
    def shown() -> dict[str, float]:
        lines = metrics.render().decode().splitlines()
        return {name: float(value) for name, value in (line.split() for line in lines if line.startswith("aenv_orch"))}

    running, memory = 'aenv_orchestrator_sandboxes{state="running"}', "aenv_orchestrator_promised_memory_mib"
    sandbox = await node.service.create(a_request())
    assert (shown()[running], shown()[memory]) == (1, sandbox.memory_mib)

    await node.service.kill(sandbox.id)
    assert (shown()[running], shown()[memory]) == (0, 0)


async def _until_clean(node: Node) -> None:
    while not node.is_clean() or node.fleet.book.all():
        await asyncio.sleep(0.001)
