"""Values as the command line writes them: sandbox ids, KEY=VALUE pairs, durations."""

import re
from collections.abc import Iterable

import click

from agentenv.base.ids import SandboxId

# Wider than our own ids, because other servers of the contract have other ones; safe in a path and in a header.
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class SandboxIdType(click.ParamType[SandboxId]):
    """The id of a sandbox."""

    name = "id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> SandboxId:
        """Return the id, or fail with what is wrong."""
        text = str(value)
        if _SANDBOX_ID.fullmatch(text) is None:
            self.fail(f"{text!r} is not the id of a sandbox.", param, ctx)
        return SandboxId(text)


class DurationType(click.ParamType[int]):
    """A duration in whole seconds, or with a unit: `90`, `90s`, `15m`, `2h`, `1d`."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return seconds, or fail with what is wrong."""
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(str(value))
        if match is None or int(match[1]) == 0:
            self.fail(f"{value!r} is not a duration such as 90, 90s, 15m or 2h.", param, ctx)
        return int(match[1]) * _UNIT_SECONDS[match[2]]


class PairType(click.ParamType[tuple[str, str]]):
    """A pair `KEY=VALUE`."""

    name = "key=value"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return key and value, or fail with what is wrong."""
        if isinstance(value, tuple):
            return value
        key, separator, content = str(value).partition("=")
        if not key or not separator:
            self.fail(f"{value!r} is not of the form KEY=VALUE.", param, ctx)
        return key, content


def to_map(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return pairs as a map. Two values for one key are refused: one of them would be lost."""
    values: dict[str, str] = {}
    for key, value in pairs:
        if key in values:
            raise click.UsageError(f"{key!r} is given twice.")
        values[key] = value
    return values
