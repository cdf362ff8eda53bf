"""Named places in fakes, where a test can hold them, or make them fail."""

import asyncio
import random

from agentenv.base.errors import Unavailable


class Stops:
    """Places where a fake waits until the test lets it go on, or fails because the test says so."""

    def __init__(self) -> None:
        self.reached: dict[str, asyncio.Event] = {}
        self.passed: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}
        self._failures: dict[str, Exception] = {}
        self.ends_at: int | None = None
        self.ended = asyncio.Event()
        self.chance: random.Random | None = None
        self.failure_rate = 0.0
        self.never_failing: set[str] = set()
        self._thawed = asyncio.Event()

    def hold(self, place: str) -> None:
        self._gates[place] = asyncio.Event()
        self.reached[place] = asyncio.Event()

    def let_go(self, place: str) -> None:
        self._gates.pop(place).set()

    def fail(self, place: str, error: Exception | None = None) -> None:
        self._failures[place] = error or Unavailable(f"{place} failed as the test said")

    def repair(self, place: str) -> None:
        del self._failures[place]

    def thaw(self) -> None:
        """Let everybody go on, so that a test can end."""
        self._thawed.set()
        for gate in self._gates.values():
            gate.set()
        self._failures.clear()

    async def _take_chances(self, place: str, chance: random.Random) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < self.failure_rate and place not in self.never_failing:
            raise Unavailable(f"{place} failed by chance")

    async def pass_by(self, place: str) -> None:
        self.passed.append(place)
        if self.ends_at is not None and len(self.passed) > self.ends_at:
            # As if the server had been killed here: nothing goes on, nobody cleans up.
            self.ended.set()
            await self._thawed.wait()
        if self.chance is not None:
            await self._take_chances(place, self.chance)
        if place in self._gates:
            gate = self._gates[place]
            self.reached[place].set()
            await gate.wait()
        if place in self._failures:
            raise self._failures[place]
