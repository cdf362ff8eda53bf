"""`aenv exec`: run a command in a sandbox, with its streams and its exit code."""

import click

from agentenv.base.ids import SandboxId
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.streams import is_forwarded
from agentenv.cli.values import DurationType, PairType, SandboxIdType, to_map
from agentenv.client.base import Flags

_HELP = """Run a command in a sandbox and end with its exit code.

\b
  aenv exec ID -- python3 -c 'print(1)'   several words reach the program exactly as they are
  aenv exec ID -- 'ls | wc -l'            a single word is a line for bash
  tar c . | aenv exec ID -- tar x         what is piped in is the command's input

Both run in a login shell (bash -l). Ctrl-C ends the command in the sandbox too. A command that a signal ended
gives 128 + its number, one that ran into --timeout 124.
"""


class _CommandOfWords(click.Command):
    """Takes everything after the sandbox's id that is no option of ours as the words of the command, `--` or not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `--` before the first word of the command."""
        with_value = {name for option in self.params for name in option.opts if not getattr(option, "is_flag", False)}
        positionals = 0
        position = 0
        while position < len(args) and args[position] != "--":
            if args[position].startswith("-") and args[position] != "-":
                position += 2 if args[position] in with_value else 1
                continue
            positionals += 1
            if positionals == 2:
                args = [*args[:position], "--", *args[position:]]
                break
            position += 1
        return super().parse_args(ctx, args)


@click.command("exec", cls=_CommandOfWords, help=_HELP)
@click.argument("sandbox_id", type=SandboxIdType(), metavar="ID")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--user", metavar="NAME", help="User to run as; default: the image's.")
@click.option("--cwd", metavar="PATH", help="Directory to run in; default: the user's home, or the image's.")
@click.option("--env", "environment", type=PairType(), multiple=True, help="Environment variable; repeatable.")
@click.option("--timeout", type=DurationType(), help="Kill the command after this long; default: never.")
@click.option(
    "--stdin",
    type=click.Choice(["auto", "yes", "no"]),
    default="auto",
    show_default=True,
    help="Forward standard input; auto: when it is a pipe or a file.",
)
@server_options
@click.pass_context
def execute(
    ctx: click.Context,
    *,
    flags: Flags,
    sandbox_id: SandboxId,
    words: tuple[str, ...],
    user: str | None,
    cwd: str | None,
    environment: tuple[tuple[str, str], ...],
    timeout: int | None,
    stdin: str,
) -> None:
    """Run a command in a sandbox."""
    from agentenv.cli import execution  # noqa: PLC0415 - pulls in the HTTP client

    is_fed = is_forwarded(0) if stdin == "auto" else stdin == "yes"
    request = execution.Request(sandbox_id, words, to_map(environment), user, cwd, timeout)
    streams = execution.Streams(stdin=0 if is_fed else None, stdout=1, stderr=2)

    async def work() -> int:
        async with open_server(flags) as server:
            return await execution.execute(server, request, streams)

    ctx.exit(run(work()))
