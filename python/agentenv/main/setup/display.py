"""Shows setup's progress: a live list on a terminal, plain lines elsewhere, or nothing but the summary for programs."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from agentenv.base.units import format_seconds
from agentenv.main.setup.step import Display, Outcome, Say, StepReport

_NAME_WIDTH = 15
_STYLES = {
    Outcome.CURRENT: "green",
    Outcome.DONE: "green",
    Outcome.MISSING: "yellow",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "dim",
}


def format_report(report: StepReport) -> str:
    """Return a step's report as one line of text with console markup."""
    style = _STYLES[report.outcome]
    took = "" if report.outcome is Outcome.SKIPPED else f" [dim]({format_seconds(report.seconds)})[/dim]"
    name, outcome = f"{report.step:{_NAME_WIDTH}}", f"{report.outcome:8}"
    return f"{name} [{style}]{outcome}[/{style}] {escape(report.detail)}{took}"


class SilentDisplay:
    """Shows nothing: the reader wants the summary."""

    def begin(self, step: str) -> Say:
        """Show nothing."""
        del step
        return lambda text: None

    def end(self, report: StepReport) -> None:
        """Show nothing."""


class PlainDisplay:
    """One line when something begins or ends, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, step: str) -> Say:
        """Say lines under the step's name."""
        return lambda text: self._console.print(
            f"{step:{_NAME_WIDTH}} {text} ...", markup=False, highlight=False, soft_wrap=True
        )

    def end(self, report: StepReport) -> None:
        """Print the report."""
        self._console.print(format_report(report), highlight=False, soft_wrap=True)


class LiveDisplay:
    """A spinner with a running clock per step; a finished step moves up into the text."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def begin(self, step: str) -> Say:
        """Start the step's spinner."""
        task = self._progress.add_task(f"{step:{_NAME_WIDTH}}", total=None, doing="")
        self._tasks[step] = task
        return lambda text: self._progress.update(task, doing=escape(text))

    def end(self, report: StepReport) -> None:
        """Replace the spinner by the report."""
        task = self._tasks.pop(report.step, None)
        if task is not None:
            self._progress.remove_task(task)
        self._progress.console.print(format_report(report), highlight=False, soft_wrap=True)


@contextmanager
def open_display(console: Console, *, is_silent: bool) -> Iterator[Display]:
    """Hand out the display that fits `console`."""
    if is_silent:
        yield SilentDisplay()
    elif console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description} {task.fields[doing]}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            yield LiveDisplay(progress)
    else:
        yield PlainDisplay(console)
