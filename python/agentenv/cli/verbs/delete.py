"""`aenv delete`: end sandboxes for good."""

import asyncio
import sys
from collections.abc import Sequence

import click

from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.cli import exit_codes
from agentenv.cli.server import Server, open_server, run, server_options
from agentenv.cli.values import SandboxIdType
from agentenv.client.base import Flags, SandboxFilter

_AT_ONCE = 8


@click.command("delete")
@click.argument("sandbox_ids", nargs=-1, type=SandboxIdType(), metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All sandboxes, paused ones too; asks first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_options
@click.pass_context
def delete(
    ctx: click.Context, *, flags: Flags, sandbox_ids: tuple[SandboxId, ...], everything: bool, yes: bool
) -> None:
    """End sandboxes for good, running or paused, and print the ids of those that ended."""
    if everything == bool(sandbox_ids):
        raise click.UsageError("Give the ids of sandboxes, or --all.")
    if everything and not yes and not sys.stdin.isatty():
        raise click.UsageError("--all asks before it deletes; where nobody can answer, add --yes.")

    async def work() -> bool:
        async with open_server(flags) as server:
            return await _delete_all(server, yes=yes) if everything else await _delete(server, sandbox_ids)

    ctx.exit(0 if run(work()) else exit_codes.FAILURE)


async def _delete_all(server: Server, *, yes: bool) -> bool:
    found = [sandbox.sandbox_id async for sandbox in server.api.list_all(SandboxFilter())]
    if not found:
        click.echo("No sandboxes.", err=True)
        return True
    if not yes:
        click.confirm(f"Delete {len(found)} sandboxes of {server.settings.api_url}?", abort=True, err=True)
    return await _delete(server, found, may_be_gone=True)


async def _delete(server: Server, sandbox_ids: Sequence[SandboxId], *, may_be_gone: bool = False) -> bool:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(sandbox_id: SandboxId) -> bool:
        async with gate:
            try:
                was_there = await server.api.kill(sandbox_id)
            except AgentEnvError as error:
                click.echo(f"aenv: {error.message}", err=True)
                return False
        if was_there:
            click.echo(sandbox_id)
        elif not may_be_gone:
            click.echo(f"aenv: there is no sandbox {sandbox_id}", err=True)
        return was_there or may_be_gone

    return all(await asyncio.gather(*(one(sandbox_id) for sandbox_id in dict.fromkeys(sandbox_ids))))
