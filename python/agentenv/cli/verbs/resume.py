"""`aenv resume`: let paused sandboxes go on."""

import click

from agentenv.base.ids import SandboxId
from agentenv.cli import exit_codes
from agentenv.cli.bulk import for_each_sandbox
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import DurationType, SandboxIdType
from agentenv.client.base import Flags


@click.command("resume")
@click.argument("sandbox_ids", nargs=-1, required=True, type=SandboxIdType(), metavar="ID...")
@click.option("--timeout", type=DurationType(), help="Lifetime from now, as 90, 15m or 2h; default: the server's.")
@click.option("--no-memory", is_flag=True, help="Boot from the disk, although the memory was kept.")
@server_options
@click.pass_context
def resume(
    ctx: click.Context, *, flags: Flags, sandbox_ids: tuple[SandboxId, ...], timeout: int | None, no_memory: bool
) -> None:
    """Resume paused sandboxes and print the ids of those that run now, also of those that did."""

    async def work() -> bool:
        async with open_server(flags) as server:

            async def one(sandbox_id: SandboxId) -> None:
                await server.api.connect(sandbox_id, timeout, with_memory=not no_memory)

            return await for_each_sandbox(sandbox_ids, one)

    ctx.exit(0 if run(work()) else exit_codes.FAILURE)
