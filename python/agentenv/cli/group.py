"""The command `aenv` as far as clients go: the table of client verbs. `main` adds the server's own."""

import click

from agentenv import __version__
from agentenv.cli.lazy import LazyGroup, Verb

VERBS = (
    Verb("auth", "agentenv.cli.verbs.auth:auth", "Store, check or forget the key of a server."),
    Verb("start", "agentenv.cli.verbs.start:start", "Start a sandbox and print its id."),
    Verb("exec", "agentenv.cli.verbs.exec:execute", "Run a command in a sandbox."),
    Verb("connect", "agentenv.cli.verbs.connect:connect", "Open a terminal in a sandbox."),
    Verb("pause", "agentenv.cli.verbs.pause:pause", "Keep sandboxes as they are, without using memory."),
    Verb("resume", "agentenv.cli.verbs.resume:resume", "Let paused sandboxes go on."),
    Verb("timeout", "agentenv.cli.verbs.timeout:timeout", "Move the end of a sandbox's life."),
    Verb("fork", "agentenv.cli.verbs.fork:fork", "Start copies of a running sandbox."),
    Verb("snapshot", "agentenv.cli.verbs.snapshot:snapshot", "Take, list, show or delete snapshots."),
    Verb("rollback", "agentenv.cli.verbs.rollback:rollback", "Make a sandbox again what a snapshot was."),
    Verb("list", "agentenv.cli.verbs.list:list_sandboxes", "List sandboxes."),
    Verb("delete", "agentenv.cli.verbs.delete:delete", "End sandboxes for good."),
)

_EPILOG = "Exit codes: 0 done, 1 failed, 2 wrong usage; exec and connect return the code of what they ran."


@click.group(
    cls=LazyGroup,
    verbs=VERBS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="aenv", message="%(prog)s %(version)s")
def client_group() -> None:
    """Run micro-VM sandboxes on an AgentENV server."""
