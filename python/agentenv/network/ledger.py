"""Who has which slot. Pure bookkeeping: every change is a transition that the table allows."""

from collections import Counter, deque
from enum import StrEnum


class SlotState(StrEnum):
    """Where a slot is in its life; an index that has no state is free."""

    KEPT = "kept"
    ADOPTING = "adopting"
    MAKING = "making"
    READY = "ready"
    HELD = "held"
    CLEANING = "cleaning"
    COOLING = "cooling"
    REMOVING = "removing"
    BROKEN = "broken"


_NEXT = {
    SlotState.KEPT: {SlotState.ADOPTING},
    SlotState.ADOPTING: {SlotState.HELD, SlotState.KEPT, SlotState.REMOVING},
    SlotState.MAKING: {SlotState.READY},
    SlotState.READY: {SlotState.HELD, SlotState.REMOVING},
    SlotState.HELD: {SlotState.CLEANING},
    SlotState.CLEANING: {SlotState.COOLING, SlotState.REMOVING},
    SlotState.COOLING: {SlotState.READY},
    SlotState.REMOVING: {SlotState.BROKEN},
    SlotState.BROKEN: {SlotState.REMOVING},
}
_MAY_END = {SlotState.MAKING, SlotState.REMOVING}


class Ledger:
    """States of all slots. Invariant: an index is in the queue of ready slots exactly while its state is READY."""

    def __init__(self, max_slots: int) -> None:
        self._max_slots = max_slots
        self._states: dict[int, SlotState] = {}
        self._ready: deque[int] = deque()
        self._cursor = 0

    def state(self, index: int) -> SlotState | None:
        """Return the state of a slot; None when the index is free."""
        return self._states.get(index)

    def count(self, *states: SlotState) -> int:
        """Return how many slots are in one of `states`."""
        return sum(1 for state in self._states.values() if state in states)

    def counts(self) -> Counter[SlotState]:
        """Return how many slots are in each state."""
        return Counter(self._states.values())

    def find(self, state: SlotState) -> list[int]:
        """Return the slots in `state`."""
        return [index for index, current in self._states.items() if current is state]

    def keep(self, index: int) -> None:
        """Note a slot that an earlier process held."""
        assert index not in self._states
        self._states[index] = SlotState.KEPT

    def claim(self) -> int | None:
        """Take a free index to make a slot of; None when there is none.

        Goes round, so that the address of a slot that was removed rests for as long as possible.
        """
        if len(self._states) >= self._max_slots:
            return None
        for offset in range(self._max_slots):
            index = (self._cursor + offset) % self._max_slots
            if index not in self._states:
                self._cursor = (index + 1) % self._max_slots
                self._states[index] = SlotState.MAKING
                return index
        return None

    def take_ready(self, purpose: SlotState = SlotState.HELD) -> int | None:
        """Take the slot that has been ready for the longest time; None when none is."""
        if not self._ready:
            return None
        index = self._ready[0]
        self.move(index, purpose)
        return index

    def move(self, index: int, state: SlotState) -> None:
        """Change the state of a slot along the table."""
        before = self._states[index]
        assert state in _NEXT[before], f"slot {index} cannot go from {before} to {state}"
        if before is SlotState.READY:
            self._ready.remove(index)
        if state is SlotState.READY:
            self._ready.append(index)
        self._states[index] = state

    def free(self, index: int) -> None:
        """Note that nothing of a slot is left."""
        assert self._states[index] in _MAY_END, f"slot {index} cannot end while {self._states[index]}"
        del self._states[index]
