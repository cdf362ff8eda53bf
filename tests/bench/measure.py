"""What a measurement is, and how results are written: JSON for programs, a table for people."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of build/bench.json. `ratio` = ours / floor, both medians of the same run; None without a floor."""

    name: str
    median: float
    unit: str
    floor_median: float | None
    ratio: float | None
    n: int
    conditions: str


def compare(name: str, unit: str, ours: Sequence[float], floor: Sequence[float], conditions: str) -> Measurement:
    """Return the row for samples of ours and of the floor, taken alternately."""
    median, floor_median = statistics.median(ours), statistics.median(floor)
    return Measurement(
        name=name,
        median=round(median, 4),
        unit=unit,
        floor_median=round(floor_median, 4),
        ratio=round(median / floor_median, 3),
        n=len(ours),
        conditions=conditions,
    )


def alone(name: str, unit: str, ours: Sequence[float], conditions: str) -> Measurement:
    """Return the row for samples that have no floor."""
    return Measurement(name, round(statistics.median(ours), 4), unit, None, None, len(ours), conditions)


def write(measurements: Sequence[Measurement], path: Path) -> None:
    """Write the JSON file; rows of other benches that it holds already stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else []
    new = {one.name for one in measurements}
    rows = [row for row in kept if row["name"] not in new] + [asdict(one) for one in measurements]
    path.write_text(json.dumps(rows, indent=2) + "\n")


def show(measurements: Sequence[Measurement]) -> None:
    """Print the table."""
    table = Table("name", "median", "floor", "ratio", "n", "conditions")
    for one in measurements:
        floor = "-" if one.floor_median is None else f"{one.floor_median:g} {one.unit}"
        ratio = "-" if one.ratio is None else f"{one.ratio:g}"
        table.add_row(one.name, f"{one.median:g} {one.unit}", floor, ratio, str(one.n), one.conditions)
    Console(width=None).print(table)
