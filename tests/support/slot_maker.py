"""A maker of slots without a kernel, with named stopping points and failures on demand."""

import asyncio
from collections import Counter, defaultdict

from agentenv.network.base import EgressPolicy
from agentenv.network.errors import NetworkFailed, SlotLost


class FakeSlotMaker:
    """Implements `SlotMaker`. `hold("create")` stops every create until `let_go("create")`."""

    def __init__(self) -> None:
        self.existing: set[int] = set()
        self.policies: dict[int, EgressPolicy] = {}
        self.damaged: set[int] = set()
        self.calls: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.kept: frozenset[int] | None = None
        self._gates: dict[str, asyncio.Event] = defaultdict(_open_gate)

    def hold(self, step: str) -> None:
        self._gates[step].clear()

    def let_go(self, step: str) -> None:
        self._gates[step].set()

    async def _step(self, step: str) -> None:
        self.calls[step] += 1
        await self._gates[step].wait()
        if self.failures[step] > 0:
            self.failures[step] -= 1
            raise NetworkFailed(f"{step} failed on purpose")

    async def prepare_host(self, keep: frozenset[int]) -> None:
        await self._step("prepare")
        self.existing &= keep

    async def mend_host(self) -> None:
        await self._step("mend")

    async def clear_host(self, keep: frozenset[int]) -> None:
        await self._step("clear")
        self.existing &= keep
        self.kept = keep

    async def create(self, index: int) -> None:
        await self._step("create")
        assert index not in self.existing
        self.existing.add(index)
        self.policies[index] = EgressPolicy()

    async def set_policy(self, index: int, policy: EgressPolicy) -> None:
        await self._step("policy")
        self.policies[index] = policy

    async def clean(self, index: int) -> None:
        await self._step("clean")
        self.policies[index] = EgressPolicy()

    async def restore(self, index: int, policy: EgressPolicy) -> None:
        await self._step("restore")
        if index in self.damaged:
            raise SlotLost("damaged on purpose")
        self.policies[index] = policy

    async def remove(self, index: int) -> None:
        await self._step("remove")
        self.existing.discard(index)


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate
