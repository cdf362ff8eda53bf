"""The command `aenv`: the client verbs, and the server's own beside them, each imported only when it is used."""

from agentenv.cli.group import client_group
from agentenv.cli.lazy import LazyGroup, Verb

_VERBS = (
    Verb("server", "agentenv.main.commands.server:server", "Run the server."),
    Verb("setup", "agentenv.main.commands.setup:setup", "Prepare this machine for a server."),
    Verb("doctor", "agentenv.main.commands.doctor:doctor", "Say what this machine can do, and what is missing."),
    Verb("layer", "agentenv.main.commands.layer:layer", "Look at layers, check them, make one of many."),
    Verb("repository", "agentenv.main.commands.repository:repository", "Show what the repository of snapshots holds."),
    Verb("demo", "agentenv.main.commands.demo:demo", "Set up, start a server, drive a sandbox with the SDK, clean up."),
)


def run() -> None:
    """Run the command line to its end; never returns."""
    group: object = client_group
    assert isinstance(group, LazyGroup)
    group.add_verbs(_VERBS)
    group()
