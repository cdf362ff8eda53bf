"""The words of `aenv repository`."""

import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from agentenv.base.errors import AgentEnvError
from agentenv.base.units import format_bytes
from agentenv.cli import exit_codes
from agentenv.main.settings import Settings
from agentenv.snapshots.audit import Audit, Hear, audit
from agentenv.snapshots.opening import make_store

_NODE = "audit"


def make_command(load_settings: Callable[[], Settings]) -> click.Command:
    """Return the command; `load_settings` reads the configuration when it runs."""

    @click.command(name="repository")
    @click.option("--verify", is_flag=True, help="Read every needed file and compare it with its digest.")
    @click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
    def repository(*, verify: bool, as_json: bool) -> None:
        """Show what the repository of snapshots holds, and name what is damaged. Changes nothing.

        Servers may be running. What is unneeded now goes by itself, when the grace time has passed, unless it is
        leased. The exit code is 1 when a snapshot is damaged; it can still be deleted.
        """
        try:
            found = asyncio.run(_audit(load_settings(), verify=verify, hear=_show_progress))
        except AgentEnvError as error:
            raise click.ClickException(error.message) from error
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(found), indent=2))
        else:
            _print(found)
        if found.damaged:
            raise SystemExit(exit_codes.FAILURE)

    return repository


async def _audit(settings: Settings, *, verify: bool, hear: Hear) -> Audit:
    # A place of its own, so that nothing is shared with a server that runs.
    with tempfile.TemporaryDirectory(prefix="aenv-audit-") as local:
        store = make_store(settings.snapshots, settings.objects, settings.home, local=Path(local), node=_NODE)
        try:
            await store.start()
            return await audit(store, reads_files=verify, hear=hear)
        finally:
            await store.close()


def _show_progress(count: int, total: int) -> None:
    if count % 100 == 0:
        click.echo(f"{count} of {total} files read", err=True)


def _print(found: Audit) -> None:
    rows = (
        ("snapshots", str(found.snapshots)),
        ("paused sandboxes", str(found.paused)),
        ("nodes", str(found.nodes)),
        ("files", f"{found.files}, {format_bytes(found.stored_bytes)}"),
        ("unneeded", f"{format_bytes(found.unneeded_bytes)}, of which {format_bytes(found.leased_bytes)} leased"),
        ("set aside", format_bytes(found.aside_bytes)),
        ("damaged", str(len(found.damaged))),
    )
    for name, value in rows:
        click.echo(f"{name}\t{value}")
    for damage in found.damaged:
        click.echo(f"{damage.snapshot_id}\t{damage.reason}", err=True)
