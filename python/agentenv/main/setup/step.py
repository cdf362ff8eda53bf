"""What a step of the setup is, and how steps run: in stages, each step once, with a report of every one."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol

from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError


class Outcome(StrEnum):
    """How a step ended."""

    CURRENT = "current"
    DONE = "done"
    MISSING = "missing"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a step found before it did anything: whether its result is there already, and one line about it."""

    is_current: bool
    detail: str


@dataclass(frozen=True, slots=True)
class StepReport:
    """How a step ended, in one line for people, and how long it took."""

    step: str
    outcome: Outcome
    detail: str
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether the step's result is there now."""
        return self.outcome in {Outcome.CURRENT, Outcome.DONE}

    def as_json(self) -> dict[str, object]:
        """Return the report for programs."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


Say = Callable[[str], None]


class Step(Protocol):
    """One thing that setup brings about.

    Promises: `inspect` changes nothing; `perform` leaves the whole result or none of it, whenever it is killed.
    """

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    async def inspect(self) -> Finding:
        """Say whether the result is there already, for the inputs of now."""
        ...

    async def perform(self, say: Say) -> str:
        """Bring the result about and return one line about it; `say` shows what is being done."""
        ...


class Display(Protocol):
    """Shows the progress of steps."""

    def begin(self, step: str) -> Say:
        """A step begins; what is said through the result is shown beside it."""
        ...

    def end(self, report: StepReport) -> None:
        """A step has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Mode:
    """How to run: `check` changes nothing, `refresh` performs what is there already once more."""

    check: bool = False
    refresh: bool = False


async def run_stages(stages: Sequence[Sequence[Step]], mode: Mode, display: Display, clock: Clock) -> list[StepReport]:
    """Run the steps of each stage side by side, and the next stage when all of them are good.

    Every step is reported: after a failure the rest is skipped, but a check looks at everything.
    """
    reports: list[StepReport] = []
    for stage in stages:
        if not mode.check and not all(report.is_good for report in reports):
            skipped = [StepReport(step.name, Outcome.SKIPPED, "an earlier step failed", 0) for step in stage]
            for report in skipped:
                display.end(report)
            reports += skipped
            continue
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run_step(step, mode, display, clock)) for step in stage]
        reports += [task.result() for task in tasks]
    return reports


async def _run_step(step: Step, mode: Mode, display: Display, clock: Clock) -> StepReport:
    start = clock.monotonic()
    say = display.begin(step.name)
    try:
        outcome, detail = await _advance(step, mode, say)
    except AgentEnvError as error:
        outcome, detail = Outcome.FAILED, error.message
    report = StepReport(step.name, outcome, detail, clock.monotonic() - start)
    display.end(report)
    return report


async def _advance(step: Step, mode: Mode, say: Say) -> tuple[Outcome, str]:
    finding = await step.inspect()
    if mode.check:
        return (Outcome.CURRENT if finding.is_current else Outcome.MISSING), finding.detail
    if finding.is_current and not mode.refresh:
        return Outcome.CURRENT, finding.detail
    return Outcome.DONE, await step.perform(say)
