from pathlib import Path

import click
import pytest

from agentenv.cli.group import VERBS, client_group
from agentenv.client.settings import ClientSettings

GUIDE = (Path(__file__).resolve().parents[3] / "docs/guide/cli.md").read_text()


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_the_guide_explains_every_verb_and_option(verb: str) -> None:
    command = client_group.get_command(click.Context(client_group), verb)
    assert command is not None

    words = [f"aenv {verb}", *(option.opts[0] for option in command.params if isinstance(option, click.Option))]
    assert [word for word in words if f"`{word}" not in GUIDE and f" {word}" not in GUIDE] == []


def test_the_guide_names_every_key_of_the_file() -> None:
    others = [name for name in ClientSettings.model_fields if name not in {"api_url", "api_key"}]

    assert [name for name in others if f"`{name}`" not in GUIDE] == []
