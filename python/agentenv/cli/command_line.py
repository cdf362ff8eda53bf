"""Turns the words after `aenv exec ID --` into programs to start, best first. Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_BASH = "/bin/bash"
_SH = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Invocation:
    """A program with its arguments. `note` tells the user what is different when a better one was not possible."""

    program: str
    arguments: tuple[str, ...]
    note: str | None = None


def invocations(words: Sequence[str]) -> list[Invocation]:
    """Return the ways to run `words`: each is tried when the image lacks the program of the one before.

    A single word is a line for the shell; several words reach the program exactly as they are.
    """
    line = words[0] if len(words) == 1 else shlex.join(words)
    ways = [Invocation(_BASH, ("-l", "-c", line))]
    if len(words) == 1:
        ways.append(Invocation(_SH, ("-c", line), f"the image has no {_BASH}, so the command runs in {_SH}"))
    program = _direct(words)
    if program:
        note = f"the image has no {_BASH}, so the program runs without a shell and without its profile"
        ways.append(Invocation(program[0], tuple(program[1:]), note))
    return ways


def interactive_shells() -> list[Invocation]:
    """Return the shells for a terminal, best first."""
    note = f"the image has no {_BASH}, so this is {_SH}"
    return [Invocation(_BASH, ("-i", "-l")), Invocation(_SH, ("-i",), note)]


def _direct(words: Sequence[str]) -> list[str]:
    if len(words) > 1:
        return list(words)
    # Only a line that means the same without a shell may go without one.
    return list(words) if shlex.quote(words[0]) == words[0] else []
