"""`aenv fork`: start copies of a running sandbox."""

import click

from agentenv.base.ids import SandboxId
from agentenv.cli import exit_codes, tables
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import DurationType, SandboxIdType
from agentenv.client.base import Flags, Sandbox
from agentenv.client.text import printable


@click.command("fork")
@click.argument("sandbox_id", type=SandboxIdType(), metavar="ID")
@click.option("--count", type=click.IntRange(1, 16), default=1, show_default=True, help="How many.")
@click.option("--timeout", type=DurationType(), help="Lifetime of each, as 90, 15m or 2h; default: the server's.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with an entry for each copy.")
@server_options
@click.pass_context
def fork(
    ctx: click.Context, *, flags: Flags, sandbox_id: SandboxId, count: int, timeout: int | None, as_json: bool
) -> None:
    """Start copies of a running sandbox, which runs on, and print their ids.

    Each copy begins where the sandbox is now: same files, same memory, same running programs. The exit code is 1 when
    one of them did not start.
    """

    async def work() -> list[Sandbox | str]:
        async with open_server(flags) as server:
            return await server.api.fork(sandbox_id, count, timeout)

    children = run(work())
    if as_json:
        tables.print_json([_fields(child) for child in children])
    for child in children:
        if isinstance(child, str):
            click.echo(f"aenv: a copy did not start: {child}", err=True)
        elif not as_json:
            click.echo(printable(child.sandbox_id))
    ctx.exit(exit_codes.FAILURE if any(isinstance(child, str) for child in children) else 0)


def _fields(child: Sandbox | str) -> dict[str, object]:
    # The words of the API; access tokens are left out, because output ends up in logs.
    return {"error": child} if isinstance(child, str) else {"sandboxID": child.sandbox_id}
