"""`aenv pause`: keep sandboxes as they are, without using memory."""

import click

from agentenv.base.ids import SandboxId
from agentenv.cli import exit_codes
from agentenv.cli.bulk import for_each_sandbox
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import SandboxIdType
from agentenv.client.base import Flags


@click.command("pause")
@click.argument("sandbox_ids", nargs=-1, required=True, type=SandboxIdType(), metavar="ID...")
@click.option("--no-memory", is_flag=True, help="Keep the disk alone; the sandbox boots when it is resumed.")
@click.option("--strict", is_flag=True, help="Refuse when the daemon in the sandbox does not answer.")
@server_options
@click.pass_context
def pause(
    ctx: click.Context, *, flags: Flags, sandbox_ids: tuple[SandboxId, ...], no_memory: bool, strict: bool
) -> None:
    """Pause sandboxes and print the ids of those that are paused now, also of those that were.

    Everything in them is kept, running programs too, until they are resumed or deleted.
    """

    async def work() -> bool:
        async with open_server(flags) as server:

            async def one(sandbox_id: SandboxId) -> None:
                await server.api.pause(sandbox_id, with_memory=not no_memory, needs_guest=strict)

            return await for_each_sandbox(sandbox_ids, one)

    ctx.exit(0 if run(work()) else exit_codes.FAILURE)
