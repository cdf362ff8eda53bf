"""`aenv start`: start a sandbox and print its id."""

import click

from agentenv.base.units import format_seconds
from agentenv.cli import tables
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import DurationType, PairType, to_map
from agentenv.client.base import Flags, NewSandbox, OnTimeout, Sandbox
from agentenv.client.text import printable


@click.command("start")
@click.argument("template", default="base")
@click.option("--timeout", type=DurationType(), help="Lifetime, as 90, 15m or 2h; default: the server's.")
@click.option("--metadata", type=PairType(), multiple=True, help="Label to find the sandbox by; repeatable.")
@click.option("--env", "environment", type=PairType(), multiple=True, help="Environment of its commands; repeatable.")
@click.option("--no-internet", is_flag=True, help="Let nothing out of the sandbox.")
@click.option(
    "--on-timeout",
    type=click.Choice([choice.value for choice in OnTimeout]),
    help="What happens at the end; default: the server's, pause.",
)
@click.option("--auto-resume", is_flag=True, help="Let traffic wake it when it is paused.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@server_options
def start(
    *,
    flags: Flags,
    template: str,
    timeout: int | None,
    metadata: tuple[tuple[str, str], ...],
    environment: tuple[tuple[str, str], ...],
    no_internet: bool,
    on_timeout: str | None,
    auto_resume: bool,
    as_json: bool,
) -> None:
    """Start a sandbox from TEMPLATE (default: base), an image or a snapshot, and print its id.

    It is ready when this returns. Where the output is no terminal, the id alone is printed.
    """
    new = NewSandbox(
        template,
        timeout,
        to_map(metadata),
        to_map(environment),
        allow_internet=not no_internet,
        on_timeout=None if on_timeout is None else OnTimeout(on_timeout),
        auto_resume=auto_resume,
    )

    async def work() -> Sandbox:
        async with open_server(flags) as server:
            return await server.api.create(new)

    sandbox = run(work())
    if as_json:
        tables.print_json(_fields(sandbox))
        return
    click.echo(printable(sandbox.sandbox_id))
    if tables.is_for_people():
        lifetime = "" if timeout is None else f", it lives for {format_seconds(timeout)}"
        click.echo(f"Started from {printable(template)}{lifetime}.", err=True)
        click.echo(f"Use it:  aenv exec {sandbox.sandbox_id} -- uname -a", err=True)


def _fields(sandbox: Sandbox) -> dict[str, object]:
    # The words of the API; the access token is left out, because output ends up in logs.
    return {
        "sandboxID": sandbox.sandbox_id,
        "templateID": sandbox.template_id,
        "alias": sandbox.alias,
        "domain": sandbox.domain,
        "envdVersion": sandbox.envd_version,
    }
