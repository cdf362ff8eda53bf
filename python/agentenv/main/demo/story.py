"""How the demo tells its story: steps that are timed and shown, and what must be so."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from agentenv.base.errors import Unavailable
from agentenv.base.units import format_seconds


class DemoFailed(Unavailable):
    """Something in the demo was not as it must be; the message says what."""

    code = "demo_failed"


@dataclass
class Story:
    """Runs steps, shows each as it ends, and remembers how long it took."""

    console: Console
    rows: list[tuple[str, str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Time a step; the lines put into the yielded list are shown as its result."""
        begin = time.perf_counter()
        result: list[str] = []
        yield result
        seconds = time.perf_counter() - begin
        self.rows.append((name, result[0] if result else "", seconds))
        self.console.print(f"[green]✓[/] {name} [dim]({format_seconds(seconds)})[/]", highlight=False)
        for line in result:
            self.console.print(f"    {line}", markup=False, highlight=False)

    def table(self) -> Table:
        """Return the table of all steps."""
        table = Table("step", "result", "time", title="What the demo did")
        for name, result, seconds in self.rows:
            table.add_row(name, result, format_seconds(seconds))
        return table


def expect(is_so: bool, otherwise: str) -> None:
    """Raise `DemoFailed` with `otherwise` when something is not so."""
    if not is_so:
        raise DemoFailed(otherwise)
