"""What verbs print: a table for people, tab-separated lines for programs, JSON for both."""

import json
import sys
from collections.abc import Sequence

import click

from agentenv.client.text import printable

_CELL_CHARACTERS = 200


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(json.dumps(value, indent=2))


def print_lines(rows: Sequence[Sequence[str]]) -> None:
    """Print rows as lines of tab-separated cells, without a head."""
    for row in rows:
        click.echo("\t".join(printable(cell, _CELL_CHARACTERS) for cell in row))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a table that fits the terminal; the first column, which is for copying, is never cut."""
    from rich.console import Console  # noqa: PLC0415 - only a terminal pays for tables
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, head in enumerate(heads):
        table.add_column(head, no_wrap=True, min_width=max(len(row[0]) for row in rows) if index == 0 else None)
    for row in rows:
        # Text keeps rich from reading markup out of names that clients chose.
        table.add_row(*(Text(printable(cell, _CELL_CHARACTERS)) for cell in row))
    Console(file=sys.stdout, highlight=False).print(table)


def is_for_people() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()
