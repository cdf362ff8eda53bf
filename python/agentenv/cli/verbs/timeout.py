"""`aenv timeout`: move the end of a sandbox's life."""

import click

from agentenv.base.ids import SandboxId
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import DurationType, SandboxIdType
from agentenv.client.base import Flags


@click.command("timeout")
@click.argument("sandbox_id", type=SandboxIdType(), metavar="ID")
@click.argument("duration", type=DurationType())
@server_options
def timeout(*, flags: Flags, sandbox_id: SandboxId, duration: int) -> None:
    """Let a running sandbox end DURATION from now (90, 15m, 2h), sooner or later than before."""

    async def work() -> None:
        async with open_server(flags) as server:
            await server.api.set_timeout(sandbox_id, duration)

    run(work())
