"""Create: what it takes, what it gives back when it fails, and who is let in."""

import asyncio

import pytest

from agentenv.base.errors import Invalid, Unavailable
from agentenv.images.errors import TemplateNotFound
from agentenv.orchestrator.base import ListQuery, OnTimeout, SandboxState
from agentenv.orchestrator.errors import (
    AdmissionRefused,
    IdempotencyInProgress,
    IdempotencyMismatch,
    IdempotencyUnknown,
    SandboxNotFound,
)
from agentenv.runtime.errors import GuestNotReady, LaunchFailed
from agentenv.vmm.base import EndCause
from support.clock import settle
from support.whole_node import RETRY_AFTER_SECONDS, Node, NodeFactory, a_request


async def test_create_returns_a_running_sandbox_that_is_durable(node: Node) -> None:
    sandbox = await node.service.create(a_request(metadata={"k": "v"}, timeout_seconds=60))

    assert sandbox.state is SandboxState.RUNNING
    assert (sandbox.ends_at - sandbox.started_at).total_seconds() == 60
    assert sandbox.on_timeout is OnTimeout.KILL
    assert sandbox.metadata == {"k": "v"}
    assert await node.service.get(sandbox.id) == sandbox
    assert await node.stored() == [sandbox.id]


async def test_create_pushes_token_and_environment_before_it_returns(node: Node) -> None:
    sandbox = await node.service.create(a_request(environment={"A": "1"}))

    (setup,) = node.guest.initialised
    assert setup.access_token == sandbox.envd_token
    assert setup.environment == {"FROM_IMAGE": "1", "A": "1"}
    assert (setup.sandbox_id, setup.default_user) == (sandbox.id, "user")


async def test_a_sandbox_that_is_being_created_is_not_there_for_clients(node: Node) -> None:
    node.stops.hold("guest.ready")
    creating = asyncio.ensure_future(node.service.create(a_request()))
    await node.stops.reached["guest.ready"].wait()

    (record,) = node.fleet.book.all()
    assert await node.service.find(ListQuery()) == []
    with pytest.raises(SandboxNotFound):
        await node.service.get(record.sandbox.id)

    node.stops.let_go("guest.ready")
    assert (await creating).id == record.sandbox.id


@pytest.mark.parametrize("place", ["network.acquire", "blocks.create", "driver.boot", "guest.ready", "guest.init"])
async def test_a_failed_create_gives_everything_back(node: Node, place: str) -> None:
    node.stops.fail(place)

    with pytest.raises(Unavailable):
        await node.service.create(a_request())

    assert node.is_clean()
    assert await node.stored() == []
    assert node.fleet.book.all() == []
    assert node.fleet.admission.memory_mib == 0


@pytest.mark.parametrize("place", ["network.acquire", "blocks.create", "driver.boot", "guest.ready", "guest.init"])
async def test_killing_a_sandbox_that_is_being_created_gives_everything_back(node: Node, place: str) -> None:
    node.stops.hold(place)
    creating = asyncio.ensure_future(node.service.create(a_request()))
    await node.stops.reached[place].wait()
    (record,) = node.fleet.book.all()

    with pytest.raises(SandboxNotFound):
        await node.service.kill(record.sandbox.id)

    error = await asyncio.gather(creating, return_exceptions=True)
    assert "ended by another request" in str(error[0])
    assert node.is_clean()
    assert node.fleet.book.all() == []


async def test_kills_of_a_sandbox_that_is_being_created_all_wait_until_nothing_is_left(node: Node) -> None:
    node.stops.hold("guest.ready")
    creating = asyncio.ensure_future(node.service.create(a_request()))
    await node.stops.reached["guest.ready"].wait()
    (record,) = node.fleet.book.all()
    node.stops.hold("machine.kill")

    kills = [asyncio.ensure_future(node.service.kill(record.sandbox.id))]
    await node.stops.reached["machine.kill"].wait()
    for _ in range(2):
        kills.append(asyncio.ensure_future(node.service.kill(record.sandbox.id)))
        await settle()
    assert not any(kill.done() for kill in kills)
    assert node.fleet.admission.memory_mib > 0

    node.stops.let_go("machine.kill")
    answers = await asyncio.gather(*kills, creating, return_exceptions=True)
    assert all(isinstance(answer, Exception) for answer in answers)
    assert node.is_clean()


async def test_a_give_back_that_fails_does_not_stop_the_others(node: Node) -> None:
    node.stops.fail("guest.init")
    node.stops.fail("blocks.remove")

    with pytest.raises(Unavailable):
        await node.service.create(a_request())

    assert node.network.held == set()
    assert node.driver.running == {}


async def test_create_goes_on_when_its_caller_goes_away(node: Node) -> None:
    node.stops.hold("guest.ready")
    creating = asyncio.ensure_future(node.service.create(a_request()))
    await node.stops.reached["guest.ready"].wait()

    creating.cancel()
    await settle()
    node.stops.let_go("guest.ready")
    while not node.fleet.live:
        await asyncio.sleep(0.001)

    assert len(await node.service.find(ListQuery())) == 1


async def test_a_machine_that_ends_while_it_starts_is_named(node: Node) -> None:
    node.stops.hold("guest.ready")
    creating = asyncio.ensure_future(node.service.create(a_request()))
    await node.stops.reached["guest.ready"].wait()
    (machine,) = node.driver.running.values()

    machine.die(EndCause.VMM_FAILED)

    with pytest.raises(LaunchFailed, match="vmm_failed"):
        await creating
    assert node.is_clean()


async def test_a_kernel_that_panics_while_it_boots_is_given_a_second_try(node: Node) -> None:
    node.stops.hold("guest.ready")
    creating = asyncio.ensure_future(node.service.create(a_request()))
    await node.stops.reached["guest.ready"].wait()

    await panic(node)
    node.stops.let_go("guest.ready")

    assert (await creating).state is SandboxState.RUNNING
    assert len(node.driver.specs) == 2
    assert len(node.network.held) == len(node.driver.running) == 1


async def test_a_kernel_that_panics_twice_is_an_error_that_leaves_nothing(node: Node) -> None:
    node.stops.hold("guest.ready")
    creating = asyncio.ensure_future(node.service.create(a_request()))
    await node.stops.reached["guest.ready"].wait()

    await panic(node)
    await panic(node)

    with pytest.raises(LaunchFailed, match="guest_panic"):
        await creating
    assert node.is_clean()


async def panic(node: Node) -> None:
    """Let the guest that boots now panic, and wait until the next one boots or none does any more."""
    (machine,) = node.driver.running.values()
    booted = len(node.driver.specs)
    machine.die(EndCause.GUEST_PANIC)
    while len(node.driver.specs) == booted and not (booted == 2 and node.is_clean()):
        await asyncio.sleep(0.001)


async def test_a_guest_that_never_answers_is_given_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = node.fleet.launcher._settings.model_copy(update={"boot_timeout_seconds": 0.01})
    monkeypatch.setattr(node.fleet.launcher, "_settings", settings)
    node.stops.hold("guest.ready")

    with pytest.raises(GuestNotReady, match="did not answer"):
        await node.service.create(a_request())

    assert node.is_clean()


async def test_an_unknown_template_is_named_and_nothing_is_taken(node: Node) -> None:
    with pytest.raises(TemplateNotFound, match="template 'nope' not found"):
        await node.service.create(a_request(template="nope"))

    assert node.fleet.admission.memory_mib == 0


@pytest.mark.parametrize(
    ("limits", "named"),
    [({"sandboxes": 1}, "max_sandboxes"), ({"memory_mib": 1023}, "max_memory_mib")],
)
async def test_one_more_than_a_limit_is_refused(make_node: NodeFactory, limits: dict[str, int], named: str) -> None:
    node = await make_node(**limits)
    first = await node.service.create(a_request())

    with pytest.raises(AdmissionRefused, match=named) as refusal:
        await node.service.create(a_request())
    assert refusal.value.retry_after_seconds == RETRY_AFTER_SECONDS

    await node.service.kill(first.id)
    assert (await node.service.create(a_request())).id != first.id


@pytest.mark.parametrize("waiting_starts", [0, 1, 3])
async def test_too_long_a_queue_of_starts_is_refused(make_node: NodeFactory, waiting_starts: int) -> None:
    node = await make_node(starts=1, waiting_starts=waiting_starts)
    node.stops.hold("driver.boot")
    waiting = [asyncio.ensure_future(node.service.create(a_request())) for _ in range(1 + waiting_starts)]
    await node.stops.reached["driver.boot"].wait()
    await settle()

    with pytest.raises(AdmissionRefused, match="max_waiting_starts"):
        await node.service.create(a_request())

    node.stops.let_go("driver.boot")
    made = await asyncio.gather(*waiting)
    assert len({sandbox.id for sandbox in made}) == 1 + waiting_starts


@pytest.mark.parametrize(
    ("words", "error", "named"),
    [
        ({"timeout_seconds": 0}, Invalid, "timeout"),
        ({"timeout_seconds": -1}, Invalid, "timeout"),
        ({"timeout_seconds": 1001}, Invalid, "max_timeout_seconds"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    node: Node, words: dict[str, int], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        await node.service.create(a_request(**words))
    assert node.is_clean()


async def test_the_same_idempotency_key_gives_the_same_sandbox(node: Node) -> None:
    first = await node.service.create(a_request(idempotency_key="k"))

    assert (await node.service.create(a_request(idempotency_key="k"))).id == first.id
    with pytest.raises(IdempotencyMismatch):
        await node.service.create(a_request(idempotency_key="k", timeout_seconds=5))

    await node.service.kill(first.id)
    with pytest.raises(IdempotencyUnknown):
        await node.service.create(a_request(idempotency_key="k"))


async def test_an_idempotency_key_in_use_is_told_so_and_a_failed_one_is_free_again(node: Node) -> None:
    node.stops.hold("guest.ready")
    creating = asyncio.ensure_future(node.service.create(a_request(idempotency_key="k")))
    await node.stops.reached["guest.ready"].wait()
    with pytest.raises(IdempotencyInProgress):
        await node.service.create(a_request(idempotency_key="k"))

    node.stops.fail("guest.init")
    node.stops.let_go("guest.ready")
    with pytest.raises(LaunchFailed):
        await creating
    node.stops._failures.clear()

    assert (await node.service.create(a_request(idempotency_key="k"))).state is SandboxState.RUNNING
