"""The bookkeeping of slots under any order of events."""

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentenv.network.ledger import Ledger, SlotState

MAX_SLOTS = 5


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens, an index has one state, and a slot is held by one holder."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(MAX_SLOTS)
        self.held: set[int] = set()

    @rule()
    def make(self) -> None:
        index = self.ledger.claim()
        if index is None:
            assert len(self.ledger.counts()) > 0
            assert sum(self.ledger.counts().values()) == MAX_SLOTS
        else:
            self.ledger.move(index, SlotState.READY)

    @rule()
    def fail_to_make(self) -> None:
        index = self.ledger.claim()
        if index is not None:
            self.ledger.free(index)

    @rule()
    def take(self) -> None:
        index = self.ledger.take_ready()
        if index is not None:
            assert index not in self.held
            self.held.add(index)

    @precondition(lambda self: self.held)
    @rule()
    def give_back(self) -> None:
        index = self.held.pop()
        for state in (SlotState.CLEANING, SlotState.COOLING, SlotState.READY):
            self.ledger.move(index, state)

    @precondition(lambda self: self.held)
    @rule()
    def give_back_what_cannot_be_cleaned(self) -> None:
        index = self.held.pop()
        for state in (SlotState.CLEANING, SlotState.REMOVING, SlotState.BROKEN, SlotState.REMOVING):
            self.ledger.move(index, state)
        self.ledger.free(index)

    @rule()
    def trim(self) -> None:
        index = self.ledger.take_ready(SlotState.REMOVING)
        if index is not None:
            self.ledger.free(index)

    @invariant()
    def the_held_are_held(self) -> None:
        assert set(self.ledger.find(SlotState.HELD)) == self.held


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40)


def test_the_index_of_a_removed_slot_rests_while_others_are_free() -> None:
    ledger = Ledger(3)
    seen = []
    for _ in range(6):
        index = ledger.claim()
        assert index is not None
        ledger.free(index)
        seen.append(index)
    assert seen == [0, 1, 2, 0, 1, 2]


def test_the_longest_ready_slot_is_taken_first() -> None:
    ledger = Ledger(3)
    for _ in range(3):
        index = ledger.claim()
        assert index is not None
        ledger.move(index, SlotState.READY)
    assert [ledger.take_ready() for _ in range(4)] == [0, 1, 2, None]


def test_a_slot_that_cools_down_cannot_be_held() -> None:
    ledger = Ledger(1)
    index = ledger.claim()
    assert index is not None
    for state in (SlotState.READY, SlotState.HELD, SlotState.CLEANING, SlotState.COOLING):
        ledger.move(index, state)
    with pytest.raises(AssertionError, match="cannot go from cooling to held"):
        ledger.move(index, SlotState.HELD)


def test_a_held_slot_cannot_just_end() -> None:
    ledger = Ledger(1)
    index = ledger.claim()
    assert index is not None
    ledger.move(index, SlotState.READY)
    with pytest.raises(AssertionError, match="cannot end while ready"):
        ledger.free(index)
