import asyncio
from dataclasses import dataclass, field

from agentenv.base.errors import Unavailable
from agentenv.main.setup.display import SilentDisplay, format_report
from agentenv.main.setup.step import Finding, Mode, Outcome, Say, StepReport, run_stages
from support.clock import FakeClock


@dataclass
class FakeStep:
    name: str
    is_current: bool = False
    error: Exception | None = None
    performed: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def inspect(self) -> Finding:
        return Finding(self.is_current, "found")

    async def perform(self, say: Say) -> str:
        say("doing")
        self.performed += 1
        if self.error:
            raise self.error
        return "made"


async def _run(*stages: tuple[FakeStep, ...], mode: Mode | None = None) -> dict[str, Outcome]:
    reports = await run_stages(stages, mode or Mode(), SilentDisplay(), FakeClock())
    return {report.step: report.outcome for report in reports}


async def test_what_is_there_is_kept_and_the_rest_is_made() -> None:
    there, missing = FakeStep("there", is_current=True), FakeStep("missing")
    assert await _run((there, missing)) == {"there": Outcome.CURRENT, "missing": Outcome.DONE}
    assert (there.performed, missing.performed) == (0, 1)


async def test_check_changes_nothing_and_looks_at_everything() -> None:
    first, second = FakeStep("first"), FakeStep("second", is_current=True)
    assert await _run((first,), (second,), mode=Mode(check=True)) == {
        "first": Outcome.MISSING,
        "second": Outcome.CURRENT,
    }
    assert first.performed == 0


async def test_refresh_makes_what_is_there_once_more() -> None:
    step = FakeStep("there", is_current=True)
    assert await _run((step,), mode=Mode(refresh=True)) == {"there": Outcome.DONE}


async def test_failure_ends_its_stage_but_not_its_neighbours() -> None:
    bad, good, later = FakeStep("bad", error=Unavailable("no luck")), FakeStep("good"), FakeStep("later")
    assert await _run((bad, good), (later,)) == {
        "bad": Outcome.FAILED,
        "good": Outcome.DONE,
        "later": Outcome.SKIPPED,
    }
    assert later.performed == 0


def test_report_shows_brackets_of_messages_as_they_are() -> None:
    assert r"\[red]" in format_report(StepReport("kernel", Outcome.FAILED, "not [red]", 1.0))
