"""`aenv connect`: open a terminal in a sandbox."""

import os

import click

from agentenv.base.ids import SandboxId
from agentenv.cli.errors import TerminalMissing
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import SandboxIdType
from agentenv.client.base import Flags


@click.command("connect")
@click.argument("sandbox_id", type=SandboxIdType(), metavar="ID")
@click.option("--user", metavar="NAME", help="User to log in as; default: the image's.")
@server_options
@click.pass_context
def connect(ctx: click.Context, *, flags: Flags, sandbox_id: SandboxId, user: str | None) -> None:
    """Open a shell in a sandbox and end with its exit code.

    The sandbox is kept alive while the terminal is open. `~.` at the start of a line leaves, also when nothing
    answers any more; `~~` sends one `~`.
    """
    if not (os.isatty(0) and os.isatty(1)):
        raise TerminalMissing("connect needs a terminal; use `aenv exec` to run a command without one")
    from agentenv.cli.interaction import interact  # noqa: PLC0415 - pulls in the HTTP client

    async def work() -> int:
        async with open_server(flags) as server:
            return await interact(server, sandbox_id, user, stdin=0, stdout=1)

    ctx.exit(run(work()))
