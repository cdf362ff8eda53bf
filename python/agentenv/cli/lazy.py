"""A command group that knows its verbs by name and summary, and imports one only when it is used."""

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from agentenv.base.errors import AgentEnvError
from agentenv.cli import exit_codes
from agentenv.cli.errors import Interrupted
from agentenv.client.errors import CommandTimedOut


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of a group; `target` is `module:attribute` of its click command."""

    name: str
    target: str
    summary: str


class LazyGroup(click.Group):
    """A click group whose verbs are imported on use. It is also the door: errors become one sentence and a code."""

    def __init__(self, *arguments: Any, verbs: Sequence[Verb] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._verbs = {verb.name: verb for verb in verbs}

    def add_verbs(self, verbs: Sequence[Verb]) -> None:
        """Add verbs; one with a name that is known replaces the older one."""
        self._verbs.update({verb.name: verb for verb in verbs})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs, as they were added."""
        return [*self._verbs, *(name for name in super().list_commands(ctx) if name not in self._verbs)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb and return its command."""
        verb = self._verbs.get(cmd_name)
        if verb is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = verb.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), verb.target
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of verbs without importing them."""
        rows = [(name, self._summary(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in self._verbs:
            return self._verbs[name].summary
        command = super().get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(80)

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; what it raises becomes a message and an exit code."""
        with _reported():
            return super().invoke(ctx)


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except Interrupted as interruption:
        sys.exit(interruption.exit_code)
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)
    except AgentEnvError as error:
        click.echo(f"aenv: {error.message}", err=True)
        sys.exit(exit_codes.COMMAND_TIMED_OUT if isinstance(error, CommandTimedOut) else exit_codes.FAILURE)
