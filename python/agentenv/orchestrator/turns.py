"""Who may change a sandbox now: asks the table, then starts, joins, waits, ends or refuses. One verb at a time each."""

import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar, cast

from agentenv.base import aio, log
from agentenv.base.errors import Bug
from agentenv.base.ids import SandboxId
from agentenv.orchestrator import fleet as fleet_module
from agentenv.orchestrator import machine
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.errors import SandboxNotFound, ServerStopping, VerbRefused
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.machine import Outcome, Verb
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.steps import Steps

_T = TypeVar("_T")
_log = log.get("orchestrator")
_EVENTS = {
    Verb.CREATE: "sandbox_created",
    Verb.KILL: "sandbox_killed",
    Verb.PAUSE: "sandbox_paused",
    Verb.RESUME: "sandbox_resumed",
    Verb.SNAPSHOT: "sandbox_snapshotted",
    Verb.FORK: "sandbox_captured_for_fork",
    Verb.ROLLBACK: "sandbox_rolled_back",
    Verb.LAPSE: "sandbox_lapsed",
}


@dataclass(slots=True)
class Turn:
    """A verb's hold on its sandbox, which is in the verb's state from the first moment.

    A verb that returns has brought the sandbox where its table entry says. One that raises has undone what it did;
    the state is put back for it, unless it has settled another one by then.
    """

    fleet: Fleet
    verb: Verb
    record: SandboxRecord
    steps: Steps
    is_intent_durable: bool = False

    @property
    def sandbox_id(self) -> SandboxId:
        """The sandbox that this turn is about."""
        return self.record.id

    def step(self, name: str) -> AbstractContextManager[None]:
        """Measure a step of this verb."""
        return self.steps.step(name)

    async def intend(self, **changes: Any) -> None:
        """Make durable what the verb is about to do, so that the next start can finish it or undo it."""
        self.record = self.fleet.book.change(self.fleet.book.get(self.sandbox_id), **changes)
        self.is_intent_durable = True
        await self.fleet.book.save(self.record)


@dataclass(frozen=True, slots=True)
class _UnderWay:
    verb: Verb
    name: str
    words: str


@dataclass(slots=True)
class Turns:
    """The verbs under way on this node, at most one per sandbox."""

    fleet: Fleet
    _operations: aio.Operations[Any] = field(default_factory=aio.Operations)
    _under_way: dict[SandboxId, _UnderWay] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _is_closed: bool = False

    async def take(
        self,
        sandbox_id: SandboxId,
        verb: Verb,
        work: Callable[[Turn], Awaitable[_T]],
        *,
        words: str = "",
        only_if: Callable[[SandboxRecord], bool] = lambda record: True,
    ) -> _T | None:
        """Do `verb`, or share the end of an equal one; None when what it is for holds already.

        Two requests are equal when their `words` are. `only_if` is asked when nothing stands in the way any more;
        when it says no, nothing happens. The verb goes on when its caller goes away.

        Raises `SandboxNotFound`, `VerbRefused`, also when another verb takes too long, and what `work` raises.
        """
        fleet = self.fleet
        deadline = fleet.clock.monotonic() + fleet.settings.verb_wait_seconds
        while True:
            record = fleet.book.find(sandbox_id)
            place = machine.ABSENT if record is None else record.state
            match machine.begin(place, verb):
                case machine.Missing():
                    raise SandboxNotFound(sandbox_id)
                case machine.Refuse():
                    self._refuse(sandbox_id, verb, place)
                case machine.Already():
                    return None
                case machine.Start(during):
                    assert record is not None, "only a creation starts from nothing"
                    if not only_if(record):
                        return None
                    return await self._start(record, verb, during, work, words)
                case machine.Join() if self._under_way[sandbox_id].words == words:
                    name = self._under_way[sandbox_id].name
                    return cast("_T", await self._operations.run(sandbox_id, name, _nothing_to_start))
                case machine.Join() | machine.Wait():
                    await self._wait(sandbox_id, deadline)
                    if fleet.clock.monotonic() >= deadline:
                        self._refuse(sandbox_id, verb, place)
                case machine.Interrupt():
                    await self._operations.cancel(sandbox_id, self._under_way[sandbox_id].name)

    async def create(self, sandbox_id: SandboxId, work: Callable[[Steps], Awaitable[SandboxRecord]]) -> SandboxRecord:
        """Make a sandbox that is not there yet; `work` leaves its record running, or nothing."""
        self._check_open()
        steps = Steps(Verb.CREATE, self.fleet.clock)
        return await self._run(sandbox_id, Verb.CREATE, "", lambda: self._make(sandbox_id, work, steps))

    async def idle(self, sandbox_id: SandboxId) -> None:
        """Return when no verb is under way on a sandbox."""
        while sandbox_id in self._under_way:
            await self._operations.wait(sandbox_id, self._under_way[sandbox_id].name)

    async def close(self) -> None:
        """Take no verb any more; creations under way are ended, and the other verbs finished."""
        self._is_closed = True
        for sandbox_id, under_way in list(self._under_way.items()):
            if under_way.verb is Verb.CREATE:
                await self._operations.cancel(sandbox_id, under_way.name)
        await self._operations.drain()

    def open_for_stop(self) -> None:
        """Take verbs again: those with which the server itself ends its work."""
        self._is_closed = False

    async def _start(
        self,
        record: SandboxRecord,
        verb: Verb,
        during: SandboxState,
        work: Callable[[Turn], Awaitable[_T]],
        words: str,
    ) -> _T:
        self._check_open()
        # In the same step of the loop as the table's answer: whoever asks next sees the new state.
        changed = self.fleet.book.change_sandbox(record, state=during)
        turn = Turn(self.fleet, verb, changed, Steps(verb, self.fleet.clock))
        return await self._run(record.id, verb, words, lambda: self._perform(turn, work))

    async def _run(
        self, sandbox_id: SandboxId, verb: Verb, words: str, work: Callable[[], Coroutine[Any, Any, _T]]
    ) -> _T:
        # A name of its own: an equal request that comes when this one has just ended must not get its result.
        under_way = _UnderWay(verb, f"{verb}#{next(self._numbers)}", words)
        self._under_way[sandbox_id] = under_way

        async def whole() -> _T:
            try:
                return await work()
            finally:
                if self._under_way.get(sandbox_id) is under_way:
                    del self._under_way[sandbox_id]

        return cast("_T", await self._operations.run(sandbox_id, under_way.name, whole))

    async def _perform(self, turn: Turn, work: Callable[[Turn], Awaitable[_T]]) -> _T:
        outcome = Outcome.LOST
        try:
            result = await work(turn)
            outcome = Outcome.DONE
            self._check_place(turn)
            return result
        except BaseException:
            outcome = await aio.finish(self._put_back(turn))
            raise
        finally:
            self._tell(turn.sandbox_id, turn.verb, outcome, turn.steps)

    async def _make(
        self, sandbox_id: SandboxId, work: Callable[[Steps], Awaitable[SandboxRecord]], steps: Steps
    ) -> SandboxRecord:
        outcome = Outcome.ROLLED_BACK
        try:
            record = await work(steps)
            outcome = Outcome.DONE
            return record
        finally:
            self._tell(sandbox_id, Verb.CREATE, outcome, steps)

    def _check_place(self, turn: Turn) -> None:
        record = self.fleet.book.find(turn.sandbox_id)
        wanted = machine.finish(turn.verb, Outcome.DONE)
        if wanted is machine.ABSENT:
            assert record is None, f"{turn.verb} left its sandbox behind"

    async def _put_back(self, turn: Turn) -> Outcome:
        """Bring a sandbox whose verb has failed back to where it was; say what has become of it."""
        book = self.fleet.book
        record = book.find(turn.sandbox_id)
        if record is None:
            return Outcome.LOST
        if record.state is not turn.record.state:
            return Outcome.LAPSED
        place = machine.finish(turn.verb, Outcome.ROLLED_BACK)
        assert isinstance(place, SandboxState)
        record = book.change(record, sandbox=replace(record.sandbox, state=place), attempt_id=None)
        if turn.is_intent_durable:
            await book.save_or_log(record)
        return Outcome.ROLLED_BACK

    async def _wait(self, sandbox_id: SandboxId, deadline: float) -> None:
        under_way = self._under_way.get(sandbox_id)
        if under_way is None:
            raise Bug(f"sandbox {sandbox_id} is between two states and no verb is under way")
        remaining = max(0.0, deadline - self.fleet.clock.monotonic())
        await aio.first(self._operations.wait(sandbox_id, under_way.name), self.fleet.clock.sleep(remaining))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ServerStopping("this server is stopping and takes no more work")

    @staticmethod
    def _refuse(sandbox_id: SandboxId, verb: Verb, place: machine.Place) -> NoReturn:
        raise VerbRefused(sandbox_id, verb, place)

    @staticmethod
    def _tell(sandbox_id: SandboxId, verb: Verb, outcome: Outcome, steps: Steps) -> None:
        seconds = steps.seconds()
        fleet_module.verb_seconds.labels(verb=verb, outcome=outcome).observe(seconds)
        event = _EVENTS[verb] if outcome is Outcome.DONE else _EVENTS[verb].replace("_", "_not_", 1)
        say = _log.info if outcome is Outcome.DONE else _log.warning
        say(event, sandbox_id=sandbox_id, outcome=outcome.value, took_ms=round(seconds * 1000), **steps.facts())


async def _nothing_to_start() -> NoReturn:
    raise Bug("a verb that was to be joined has gone")
