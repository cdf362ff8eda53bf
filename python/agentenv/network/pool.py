"""The pool of slots: keeps some ready, gives them out, takes them back. Decides; `maker` does."""

import asyncio
import math
import random

from agentenv.base import log, metrics
from agentenv.base.aio import Operations, Supervisor, for_each
from agentenv.base.clock import Clock, SystemClock
from agentenv.base.errors import AgentEnvError
from agentenv.network.base import EgressPolicy, GuestIdentity, Slot
from agentenv.network.errors import NetworkFailed, SlotLost, SlotsExhausted
from agentenv.network.ledger import Ledger, SlotState
from agentenv.network.maker import KernelSlotMaker, SlotMaker
from agentenv.network.plan import TAP, AddressPlan
from agentenv.network.settings import NetworkSettings

_FIRST_RETRY_SECONDS = 0.5
_log = log.get("network")
_slots = metrics.gauge("aenv_network_slots", "Network slots by state.", ("state",))
_seconds = metrics.histogram("aenv_network_step_seconds", "Duration of work on a slot.", ("step",))
_failures = metrics.counter("aenv_network_step_failures", "Work on a slot that failed.", ("step",))


def plan_of(settings: NetworkSettings) -> AddressPlan:
    """Return the address plan that the settings describe."""
    return AddressPlan(settings.prefix, settings.network, settings.max_slots, settings.uid_base)


class SlotPool:
    """Implements `Network`.

    Work on a slot is an operation of its own, so a caller that goes away leaves a slot that is whole and accounted
    for: a cancelled `acquire` finds its slot in the pool again, a cancelled `release` goes on.
    """

    def __init__(
        self, settings: NetworkSettings, *, maker: SlotMaker | None = None, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._plan = plan_of(settings)
        self._maker = maker or KernelSlotMaker(settings, self._plan, self._clock)
        self._ledger = Ledger(settings.max_slots)
        self._operations: Operations[None] = Operations()
        self._supervisor: Supervisor | None = None
        self._gate = asyncio.Semaphore(settings.create_at_once)
        self._wake = asyncio.Event()
        self._waiting = 0

    async def start(self, keep: frozenset[int]) -> None:
        """Remove leftovers, make the host ready, fill the pool to its low mark and keep it filled from then on."""
        if self._supervisor is not None:
            return
        try:
            await self._maker.prepare_host(keep)
            for index in keep:
                self._ledger.keep(index)
            await self._make_ready(self._settings.ready_slots_low)
        except BaseException:
            await self._undo_start(keep)
            raise
        self._supervisor = Supervisor(self._clock)
        self._supervisor.start("network.refill", self._keep_filled())
        self._supervisor.every("network.host_check", self._settings.host_check_seconds, self._maker.mend_host)
        self._changed()

    async def _undo_start(self, keep: frozenset[int]) -> None:
        try:
            await self.stop(keep=keep)
        except AgentEnvError as error:
            # The reason why the start failed is the one that the operator must see.
            _log.error("network_start_not_undone", reason=error.message)

    async def acquire(self, policy: EgressPolicy) -> Slot:
        """Return a ready slot, or one made for the occasion."""
        if self._supervisor is None:
            raise NetworkFailed("the network is not started, so no slot can be given out")
        self._waiting += 1
        try:
            while (index := self._ledger.take_ready()) is None:
                await self._make_another()
        finally:
            self._waiting -= 1
        self._changed()
        if policy != EgressPolicy():
            try:
                await self._maker.set_policy(index, policy)
            except BaseException:
                self._start_cleaning(index)
                raise
        return self._slot(index)

    async def _make_another(self) -> None:
        """Make a slot; when no index is free, wait for one that is being made."""
        index = self._ledger.claim()
        if index is None:
            making = self._ledger.find(SlotState.MAKING)
            if not making:
                raise SlotsExhausted(
                    f"all {self._settings.max_slots} network slots are in use; delete sandboxes or raise max_slots",
                    retry_after_seconds=max(1, math.ceil(self._settings.cool_down_seconds)),
                )
            index = making[0]
        await self._make(index)

    async def _make(self, index: int) -> None:
        await self._operations.run(str(index), "make", lambda: self._make_now(index))

    async def _make_now(self, index: int) -> None:
        try:
            with _seconds.labels(step="make").time():
                async with self._gate:
                    await self._maker.create(index)
        except BaseException:
            _failures.labels(step="make").inc()
            self._ledger.free(index)
            raise
        self._ledger.move(index, SlotState.READY)
        self._changed()

    async def adopt(self, index: int, policy: EgressPolicy) -> Slot:
        """Return a kept slot when it is whole; a slot that is not is removed."""
        if self._ledger.state(index) is not SlotState.KEPT:
            raise SlotLost(f"network slot {index} was not kept from an earlier server")
        self._ledger.move(index, SlotState.ADOPTING)
        await self._operations.run(str(index), "adopt", lambda: self._adopt_now(index, policy))
        return self._slot(index)

    async def _adopt_now(self, index: int, policy: EgressPolicy) -> None:
        try:
            await self._maker.restore(index, policy)
        except SlotLost:
            await self._remove_now(index)
            raise
        except BaseException:
            self._ledger.move(index, SlotState.KEPT)
            raise
        self._ledger.move(index, SlotState.HELD)
        self._changed()

    async def release(self, slot: Slot) -> None:
        """Clean a slot and let it cool down; one that cannot be cleaned is removed. A slot not held is left alone."""
        if self._ledger.state(slot.index) is not SlotState.HELD:
            _log.warning("slot_release_ignored", slot=slot.index, state=self._ledger.state(slot.index))
            return
        self._ledger.move(slot.index, SlotState.CLEANING)
        await self._operations.run(str(slot.index), "clean", lambda: self._clean_now(slot.index))

    def _start_cleaning(self, index: int) -> None:
        self._ledger.move(index, SlotState.CLEANING)
        if self._supervisor is not None:
            work = self._operations.run(str(index), "clean", lambda: self._clean_now(index))
            self._supervisor.start("network.clean", work)

    async def _clean_now(self, index: int) -> None:
        try:
            with _seconds.labels(step="clean").time():
                async with self._gate:
                    await self._maker.clean(index)
        except AgentEnvError as error:
            _failures.labels(step="clean").inc()
            _log.warning("slot_cleaning_failed", slot=index, reason=error.message)
            await self._remove_now(index)
            return
        self._ledger.move(index, SlotState.COOLING)
        self._changed()
        if self._supervisor is not None:
            self._supervisor.start("network.cool_down", self._cool_down(index))

    async def _cool_down(self, index: int) -> None:
        await self._clock.sleep(self._settings.cool_down_seconds)
        self._ledger.move(index, SlotState.READY)
        self._changed()

    async def _remove_now(self, index: int) -> None:
        """Remove a slot. One that resists is broken: it is tried again and given to nobody."""
        if self._ledger.state(index) is not SlotState.REMOVING:
            self._ledger.move(index, SlotState.REMOVING)
        try:
            with _seconds.labels(step="remove").time():
                async with self._gate:
                    await self._maker.remove(index)
        except AgentEnvError as error:
            _failures.labels(step="remove").inc()
            _log.error("slot_removal_failed", slot=index, reason=error.message)
            self._ledger.move(index, SlotState.BROKEN)
        else:
            self._ledger.free(index)
        self._changed()

    async def _keep_filled(self) -> None:
        pause = _FIRST_RETRY_SECONDS
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._balance()
            except AgentEnvError as error:
                _log.warning("slot_refill_failed", reason=error.message, retry_seconds=pause)
            else:
                if not self._ledger.count(SlotState.BROKEN):
                    pause = _FIRST_RETRY_SECONDS
                    continue
            await self._clock.sleep(pause * random.uniform(0.9, 1.1))  # noqa: S311 - jitter, not a secret
            pause = min(pause * 2, self._settings.retry_seconds_max)
            self._wake.set()

    async def _balance(self) -> None:
        """Bring the number of ready slots between the marks, and try again to remove what is broken."""
        broken = self._ledger.find(SlotState.BROKEN)
        for index in broken:
            self._ledger.move(index, SlotState.REMOVING)
        # A slot that was made for somebody who has not yet picked it up is not surplus.
        surplus = self._ledger.count(SlotState.READY) - self._waiting - self._settings.ready_slots_high
        taken = [self._ledger.take_ready(SlotState.REMOVING) for _ in range(surplus)]
        await for_each(
            [*broken, *(index for index in taken if index is not None)],
            lambda index: self._operations.run(str(index), "remove", lambda: self._remove_now(index)),
            at_once=self._settings.create_at_once,
        )
        if self._ledger.count(SlotState.READY, SlotState.MAKING) < self._settings.ready_slots_low:
            await self._make_ready(self._settings.ready_slots_high)

    async def _make_ready(self, mark: int) -> None:
        """Make slots until `mark` are ready or no index is free. Raises the first failure."""
        missing = mark - self._ledger.count(SlotState.READY, SlotState.MAKING)
        claimed = [index for _ in range(missing) if (index := self._ledger.claim()) is not None]
        failed = await for_each(claimed, self._make, at_once=self._settings.create_at_once)
        if failed:
            raise failed[0][1]

    async def stop(self, *, keep: frozenset[int] = frozenset()) -> None:
        """End all work, then remove everything that carries our prefix, except the slots in `keep`."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.stop()
        await self._operations.drain()
        await self._maker.clear_host(keep)
        self._ledger = Ledger(self._settings.max_slots)
        self._changed()

    def _changed(self) -> None:
        counts = self._ledger.counts()
        for state in SlotState:
            _slots.labels(state=state).set(counts[state])
        self._wake.set()

    def _slot(self, index: int) -> Slot:
        plan = self._plan.slot(index)
        return Slot(index, plan.name, TAP, plan.owner, plan.address, GuestIdentity())
