"""The words of `aenv doctor`."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentenv.base import log
from agentenv.base.errors import AgentEnvError
from agentenv.main.doctor.check import Check, State
from agentenv.main.doctor.leaks import find_leaks
from agentenv.main.doctor.machine import make_probe
from agentenv.main.doctor.service import diagnose
from agentenv.main.settings import Settings

LoadSettings = Callable[[], Settings]
_STYLES = {State.OK: "green", State.WARNING: "yellow", State.MISSING: "red"}


def make_command(load_settings: LoadSettings) -> click.Command:
    """Return the command; `load_settings` reads the configuration when it runs."""

    @click.command(name="doctor")
    @click.option("--json", "as_json", is_flag=True, help="Print the answer for programs.")
    @click.option("--fresh", is_flag=True, help="Start a guest under every accelerator again, instead of remembering.")
    @click.option("--leaks", is_flag=True, help="List what servers of this home have on this machine; see below.")
    def doctor(*, as_json: bool, fresh: bool, leaks: bool) -> None:
        """Say what this machine can do for a server, and what to do about the rest.

        Exits with 1 when a server could not work here.

        With --leaks: lists monitors, namespaces, links, nft tables, mounts, directories and disks of sandboxes instead.
        While no server runs, each of them is a leak, and the exit code is 1; the next start of a server removes them.
        """
        if leaks and fresh:
            raise click.UsageError("--leaks starts no guest, so it cannot go with --fresh")
        log.configure(log.LogLevel.WARNING, log.LogFormat.TEXT)
        try:
            settings = load_settings()
        except AgentEnvError as error:
            raise click.ClickException(error.message) from error
        if leaks:
            _show_leaks(asyncio.run(find_leaks(settings.home, settings.network)), as_json=as_json)
            return
        checks = asyncio.run(diagnose(settings, make_probe(settings.vmm, settings.home, fresh=fresh)))
        is_able = all(check.state is not State.MISSING for check in checks)
        if as_json:
            click.echo(format_json(checks, settings.home))
        else:
            print_table(checks, Console(), settings.home)
        if not is_able:
            raise SystemExit(1)

    return doctor


def _show_leaks(found: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"found": list(found)}, indent=2))
    else:
        for line in found or ("nothing",):
            click.echo(line)
    if found:
        raise SystemExit(1)


def format_json(checks: Sequence[Check], home: Path) -> str:
    """Return the answer for programs: `able`, `home`, and one object per check under its stable key."""
    able = all(check.state is not State.MISSING for check in checks)
    by_key = {check.key: {"state": check.state, "value": check.value, "remedy": check.remedy} for check in checks}
    return json.dumps({"able": able, "home": str(home), "checks": by_key}, indent=2)


def print_table(checks: Sequence[Check], console: Console, home: Path) -> None:
    """Print the answer for people."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"home: {home}", title_justify="left")
    table.add_column("what", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold")
    for check in checks:
        style = _STYLES[check.state]
        name = check.key.replace("_", " ")
        table.add_row(name, f"[{style}]{check.state}[/{style}]", escape(check.value), escape(check.remedy))
    console.print(table)
    missing = [check.key.replace("_", " ") for check in checks if check.state is State.MISSING]
    if missing:
        console.print(f"a server cannot work here yet: {', '.join(missing)}", style="red", highlight=False)
    else:
        console.print("a server can work here", style="green", highlight=False)
