"""The pool's decisions, with a maker that has no kernel."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentenv.base.aio import Supervisor
from agentenv.network.base import EgressPolicy
from agentenv.network.errors import NetworkFailed, SlotLost, SlotsExhausted
from agentenv.network.pool import SlotPool
from agentenv.network.settings import NetworkSettings
from support.clock import FakeClock, settle
from support.slot_maker import FakeSlotMaker

ONLINE, OFFLINE = EgressPolicy(), EgressPolicy(allow_internet=False)
COOL_DOWN = 5.0


class Bench:
    """A pool with its fakes, and tasks that tests can cancel."""

    def __init__(self, **changes: Any) -> None:
        defaults: dict[str, Any] = {"max_slots": 4, "ready_slots_low": 0, "ready_slots_high": 2}
        self.clock = FakeClock()
        self.maker = FakeSlotMaker()
        self.pool = SlotPool(
            NetworkSettings(**(defaults | {"cool_down_seconds": COOL_DOWN} | changes)),
            maker=self.maker,
            clock=self.clock,
        )
        self.tasks = Supervisor(self.clock)


@pytest.fixture
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    made = Bench(**getattr(request, "param", {}))
    await made.pool.start(frozenset())
    await settle()
    yield made
    for step in ("create", "clean", "remove", "policy"):
        made.maker.let_go(step)
    await made.tasks.stop()
    await made.pool.stop()


def with_settings(**changes: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", [changes], indirect=True)


@with_settings(ready_slots_low=2, ready_slots_high=3)
async def test_start_fills_to_the_low_mark_before_it_returns(bench: Bench) -> None:
    assert len(bench.maker.existing) == 2


@with_settings(ready_slots_low=2, ready_slots_high=3)
async def test_taking_a_slot_below_the_low_mark_refills_to_the_high_mark(bench: Bench) -> None:
    await bench.pool.acquire(ONLINE)
    await settle()
    assert len(bench.maker.existing) == 4


@with_settings(ready_slots_low=1, ready_slots_high=1)
async def test_a_ready_slot_is_given_out_without_work(bench: Bench) -> None:
    bench.maker.hold("create")
    await bench.pool.acquire(ONLINE)
    assert bench.maker.calls["policy"] == 0


async def test_an_empty_pool_makes_a_slot(bench: Bench) -> None:
    slot = await bench.pool.acquire(ONLINE)
    assert (slot.namespace, slot.tap, slot.owner) == ("aenv-0", "tap0", 310_000)


async def test_concurrent_holders_get_different_slots(bench: Bench) -> None:
    slots = await asyncio.gather(*(bench.pool.acquire(ONLINE) for _ in range(4)))
    assert len({slot.index for slot in slots}) == 4


@with_settings(create_at_once=2)
async def test_no_more_slots_are_made_at_once_than_allowed(bench: Bench) -> None:
    bench.maker.hold("create")
    for number in range(4):
        bench.tasks.start(f"acquire {number}", bench.pool.acquire(ONLINE))
    await settle()
    assert bench.maker.calls["create"] == 2
    bench.maker.let_go("create")
    await settle()
    assert bench.maker.calls["create"] == 4


async def test_when_all_are_held_the_error_says_when_to_come_back(bench: Bench) -> None:
    for _ in range(4):
        await bench.pool.acquire(ONLINE)
    with pytest.raises(SlotsExhausted, match="all 4 network slots") as error:
        await bench.pool.acquire(ONLINE)
    assert error.value.retry_after_seconds == 5


@with_settings(max_slots=1, ready_slots_high=1)
async def test_the_last_index_in_the_making_is_waited_for(bench: Bench) -> None:
    bench.maker.hold("create")
    first = bench.tasks.start("first", bench.pool.acquire(ONLINE))
    await settle()
    first.cancel()
    second = bench.tasks.start("second", bench.pool.acquire(ONLINE))
    await settle()
    bench.maker.let_go("create")
    assert (await second) is not None
    assert bench.maker.calls["create"] == 1


async def test_a_policy_is_set_before_the_slot_is_given_out(bench: Bench) -> None:
    slot = await bench.pool.acquire(OFFLINE)
    assert bench.maker.policies[slot.index] == OFFLINE


async def test_a_slot_whose_policy_cannot_be_set_goes_back(bench: Bench) -> None:
    bench.maker.failures["policy"] = 1
    with pytest.raises(NetworkFailed):
        await bench.pool.acquire(OFFLINE)
    await settle()
    await bench.clock.advance(COOL_DOWN)
    assert bench.maker.calls["clean"] == 1
    assert (await bench.pool.acquire(ONLINE)).index == 0
    assert bench.maker.calls["create"] == 1


@pytest.mark.parametrize("step", ["create", "policy"])
async def test_a_cancelled_acquire_leaves_its_slot_in_the_pool(bench: Bench, step: str) -> None:
    bench.maker.hold(step)
    waiting = bench.tasks.start("waiting", bench.pool.acquire(OFFLINE))
    await settle()
    waiting.cancel()
    await settle()
    bench.maker.let_go(step)
    await settle()
    await bench.clock.advance(COOL_DOWN)
    slot = await bench.pool.acquire(ONLINE)
    assert slot.index == 0
    assert bench.maker.policies[0] == ONLINE
    assert bench.maker.calls["create"] == 1


async def test_a_failure_to_make_reaches_the_caller_and_frees_the_index(bench: Bench) -> None:
    bench.maker.failures["create"] = 1
    with pytest.raises(NetworkFailed, match="on purpose"):
        await bench.pool.acquire(ONLINE)
    for _ in range(4):
        await bench.pool.acquire(ONLINE)


@with_settings(max_slots=1, ready_slots_high=1)
async def test_a_released_slot_rests_before_it_is_given_out_again(bench: Bench) -> None:
    slot = await bench.pool.acquire(OFFLINE)
    await bench.pool.release(slot)
    with pytest.raises(SlotsExhausted):
        await bench.pool.acquire(ONLINE)
    await bench.clock.advance(COOL_DOWN - 0.1)
    with pytest.raises(SlotsExhausted):
        await bench.pool.acquire(ONLINE)
    await bench.clock.advance(0.2)
    assert await bench.pool.acquire(ONLINE) == slot
    assert bench.maker.policies[slot.index] == ONLINE


async def test_a_second_release_does_nothing(bench: Bench) -> None:
    slot = await bench.pool.acquire(ONLINE)
    await bench.pool.release(slot)
    await bench.pool.release(slot)
    assert bench.maker.calls["clean"] == 1


async def test_a_cancelled_release_goes_on(bench: Bench) -> None:
    slot = await bench.pool.acquire(ONLINE)
    bench.maker.hold("clean")
    releasing = bench.tasks.start("releasing", bench.pool.release(slot))
    await settle()
    releasing.cancel()
    await settle()
    bench.maker.let_go("clean")
    await settle()
    await bench.clock.advance(COOL_DOWN)
    assert await bench.pool.acquire(ONLINE) == slot


async def test_a_slot_that_cannot_be_cleaned_is_removed(bench: Bench) -> None:
    slot = await bench.pool.acquire(ONLINE)
    bench.maker.failures["clean"] = 1
    await bench.pool.release(slot)
    assert slot.index not in bench.maker.existing


@with_settings(max_slots=1, ready_slots_high=1)
async def test_a_slot_that_cannot_be_removed_is_tried_again_and_given_to_nobody(bench: Bench) -> None:
    slot = await bench.pool.acquire(ONLINE)
    bench.maker.failures.update({"clean": 1, "remove": 2})
    await bench.pool.release(slot)
    await settle()
    with pytest.raises(SlotsExhausted):
        await bench.pool.acquire(ONLINE)
    for _ in range(3):
        await bench.clock.advance(60)
    assert bench.maker.existing == set()
    await bench.pool.acquire(ONLINE)


async def test_more_ready_slots_than_the_high_mark_are_removed(bench: Bench) -> None:
    slots = [await bench.pool.acquire(ONLINE) for _ in range(4)]
    for slot in slots:
        await bench.pool.release(slot)
    await bench.clock.advance(COOL_DOWN)
    assert len(bench.maker.existing) == 2


@with_settings(ready_slots_low=2, ready_slots_high=2)
async def test_refilling_backs_off_while_it_fails_and_then_recovers(bench: Bench) -> None:
    bench.maker.failures["create"] = 6
    await bench.pool.acquire(ONLINE)
    await settle()
    tried = bench.maker.calls["create"]
    await bench.clock.advance(0.3)
    assert bench.maker.calls["create"] == tried
    for _ in range(10):
        await bench.clock.advance(60)
    assert len(bench.maker.existing) == 3


async def test_a_start_that_cannot_fill_the_pool_fails_and_cleans_up() -> None:
    made = Bench(ready_slots_low=2)
    made.maker.failures["create"] = 1
    with pytest.raises(NetworkFailed):
        await made.pool.start(frozenset())
    assert made.maker.existing == set()
    await made.pool.start(frozenset())
    assert len(made.maker.existing) == 2
    await made.pool.stop()


@with_settings(host_check_seconds=10)
async def test_the_host_is_mended_again_and_again_also_after_a_failure(bench: Bench) -> None:
    before = bench.maker.calls["mend"]
    bench.maker.failures["mend"] = 1
    for _ in range(3):
        await bench.clock.advance(11)
    assert bench.maker.calls["mend"] == before + 3


async def test_a_start_that_fails_says_why_even_when_it_cannot_be_undone() -> None:
    made = Bench()
    made.maker.failures.update({"prepare": 1, "clear": 1})
    with pytest.raises(NetworkFailed, match="prepare failed"):
        await made.pool.start(frozenset())
    assert made.maker.calls["clear"] == 1


async def test_without_start_no_slot_is_given_out() -> None:
    with pytest.raises(NetworkFailed, match="not started"):
        await Bench().pool.acquire(ONLINE)


class TestAdoption:
    @pytest.fixture
    async def bench(self) -> AsyncIterator[Bench]:
        made = Bench()
        made.maker.existing = {0, 1, 3}
        await made.pool.start(frozenset({0, 3}))
        yield made
        await made.pool.stop()

    async def test_kept_slots_are_given_to_nobody_else(self, bench: Bench) -> None:
        assert bench.maker.existing == {0, 3}
        assert {(await bench.pool.acquire(ONLINE)).index for _ in range(2)} == {1, 2}
        with pytest.raises(SlotsExhausted):
            await bench.pool.acquire(ONLINE)

    async def test_an_adopted_slot_is_held_and_can_be_released(self, bench: Bench) -> None:
        slot = await bench.pool.adopt(3, OFFLINE)
        assert bench.maker.policies[3] == OFFLINE
        await bench.pool.release(slot)
        assert bench.maker.calls["clean"] == 1

    async def test_a_slot_is_adopted_once(self, bench: Bench) -> None:
        await bench.pool.adopt(0, ONLINE)
        with pytest.raises(SlotLost):
            await bench.pool.adopt(0, ONLINE)

    async def test_a_slot_that_was_not_kept_is_lost(self, bench: Bench) -> None:
        with pytest.raises(SlotLost, match="was not kept"):
            await bench.pool.adopt(1, ONLINE)

    async def test_a_damaged_slot_is_removed_and_its_index_used_again(self, bench: Bench) -> None:
        bench.maker.damaged = {0}
        with pytest.raises(SlotLost, match="on purpose"):
            await bench.pool.adopt(0, ONLINE)
        assert bench.maker.existing == {3}
        assert len([await bench.pool.acquire(ONLINE) for _ in range(3)]) == 3

    async def test_a_slot_that_could_not_be_verified_stays_kept(self, bench: Bench) -> None:
        bench.maker.failures["restore"] = 1
        with pytest.raises(NetworkFailed):
            await bench.pool.adopt(0, ONLINE)
        assert (await bench.pool.adopt(0, ONLINE)).index == 0


async def test_stop_waits_for_work_under_way_and_names_what_to_keep() -> None:
    made = Bench()
    await made.pool.start(frozenset())
    slot = await made.pool.acquire(ONLINE)
    made.maker.hold("clean")
    releasing = made.tasks.start("releasing", made.pool.release(slot))
    await settle()
    stopping = made.tasks.start("stopping", made.pool.stop(keep=frozenset({2})))
    await settle()
    assert made.maker.calls["clear"] == 0
    made.maker.let_go("clean")
    await asyncio.gather(releasing, stopping)
    assert made.maker.kept == frozenset({2})
