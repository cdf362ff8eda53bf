import shlex

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.cli.command_line import invocations
from agentenv.cli.exit_codes import of_end
from agentenv.cli.values import DurationType
from agentenv.cli.verbs.list import describe_duration
from agentenv.client.base import Ended


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=2))
def test_several_words_survive_the_shell(words: list[str]) -> None:
    first, *_, last = invocations(words)

    assert shlex.split(first.arguments[-1]) == words
    assert [last.program, *last.arguments] == words


@pytest.mark.parametrize("line", ["a b", "a|b", "$X", "~", ""])
def test_a_line_that_needs_a_shell_never_goes_without(line: str) -> None:
    assert [way.program for way in invocations([line])] == ["/bin/bash", "/bin/sh"]


@pytest.mark.parametrize("text, seconds", [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86_400)])
def test_durations(text: str, seconds: int) -> None:
    assert DurationType().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "0", "0h", "-1", "1.5", "1w", "٣", "1" * 10])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DurationType().convert(text, None, None)


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0s"), (59.9, "59s"), (60, "1m"), (245, "4m5s"), (7800, "2h10m"), (273_600, "3d4h")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert describe_duration(seconds) == text


@pytest.mark.parametrize(
    "end, code",
    [
        (Ended(0), 0),
        (Ended(255), 255),
        (Ended(-1, "killed"), 137),
        (Ended(-1, "terminated"), 143),
        (Ended(-1, "signal 40"), 168),
        (Ended(-1, "unheard of"), 255),
    ],
)
def test_exit_codes_are_those_of_a_shell(end: Ended, code: int) -> None:
    assert of_end(end) == code


@given(st.builds(Ended, st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=20)))
def test_every_end_has_an_exit_code_that_a_process_can_have(end: Ended) -> None:
    assert 0 <= of_end(end) <= 255
