"""`aenv rollback`: make a sandbox again what a snapshot was."""

import click

from agentenv.base.ids import SandboxId
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import SandboxIdType
from agentenv.client.base import Flags, Sandbox
from agentenv.client.text import printable


@click.command("rollback")
@click.argument("sandbox_id", type=SandboxIdType(), metavar="ID")
@click.argument("snapshot")
@server_options
def rollback(*, flags: Flags, sandbox_id: SandboxId, snapshot: str) -> None:
    """Make a running sandbox again what SNAPSHOT (an id or a name) was, and print its id.

    What it is now is lost. The snapshot must have been taken of this sandbox, or of what it was made from.
    """

    async def work() -> Sandbox:
        async with open_server(flags) as server:
            return await server.api.rollback(sandbox_id, snapshot)

    click.echo(printable(run(work()).sandbox_id))
