"""The words of `aenv setup`."""

import asyncio
import json
import os
from collections.abc import Callable

import click
from rich.console import Console

from agentenv.base import log
from agentenv.base.clock import SystemClock
from agentenv.base.errors import AgentEnvError
from agentenv.base.units import format_seconds
from agentenv.main.setup.display import open_display
from agentenv.main.setup.service import ProvisionSettings, run_setup
from agentenv.main.setup.step import Mode, StepReport

LoadSettings = Callable[[], ProvisionSettings]


def make_command(load_settings: LoadSettings) -> click.Command:
    """Return the command; `load_settings` reads the configuration when it runs."""

    @click.command(name="setup")
    @click.option("--check", is_flag=True, help="Change nothing; exit with 1 when something is missing.")
    @click.option("--offline", is_flag=True, help="Download nothing: use what is there, and say what is missing.")
    @click.option("--refresh", is_flag=True, help="Look for a newer guest kernel and build everything anew.")
    @click.option("--json", "as_json", is_flag=True, help="Print a summary for programs instead of progress.")
    def setup(*, check: bool, offline: bool, refresh: bool, as_json: bool) -> None:
        """Prepare this machine: host packages, guest kernel, guest daemon, block daemon, initramfs, base image.

        Asks nothing. What is there already is kept, so it can be run again at any time.
        """
        if check and refresh:
            raise click.UsageError("--check changes nothing, so it cannot go with --refresh")
        if not check and os.geteuid() != 0:
            raise click.ClickException("setup installs packages and builds disks: run it as root")
        log.configure(log.LogLevel.WARNING, log.LogFormat.TEXT)
        # The monitors run as users without rights and must read what is made here, whatever the caller's mask is.
        os.umask(0o022)
        mode = Mode(check=check, refresh=refresh)
        console = Console(stderr=as_json)
        clock = SystemClock()
        start = clock.monotonic()
        try:
            with open_display(console, is_silent=as_json) as display:
                reports = asyncio.run(run_setup(load_settings(), mode, display, clock, offline=offline))
        except AgentEnvError as error:
            raise click.ClickException(error.message) from error
        _print_summary(reports, clock.monotonic() - start, console, as_json=as_json)
        if not all(report.is_good for report in reports):
            raise SystemExit(1)

    return setup


def _print_summary(reports: list[StepReport], seconds: float, console: Console, *, as_json: bool) -> None:
    is_ready = all(report.is_good for report in reports)
    if as_json:
        summary = {"ready": is_ready, "seconds": round(seconds, 3), "steps": [report.as_json() for report in reports]}
        click.echo(json.dumps(summary, indent=2))
    elif is_ready:
        console.print(f"ready after {format_seconds(seconds)}", highlight=False)
    else:
        bad = ", ".join(report.step for report in reports if not report.is_good)
        console.print(f"not ready: {bad}", style="red", highlight=False)
