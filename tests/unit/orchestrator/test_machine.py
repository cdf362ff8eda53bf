"""The transition table: every pair of verb and state is decided, and by these rules."""

import pytest

from agentenv.base.errors import Bug
from agentenv.orchestrator import machine
from agentenv.orchestrator.base import PAUSED_STATES, ROUTABLE_STATES, RUNNING_STATES, SandboxState
from agentenv.orchestrator.machine import ABSENT, Decision, Outcome, Verb

S = SandboxState
PLACES: list[machine.Place] = [ABSENT, *SandboxState]
LETTERS = {
    machine.Join: "join",
    machine.Wait: "wait",
    machine.Interrupt: "interrupt",
    machine.Already: "already",
    machine.Missing: "missing",
    machine.Refuse: "refuse",
}
# Written out by hand, and compared as a whole: a change of the table is a change of this text.
TABLE = """
            absent   starting  running      snapshotting forking   pausing   paused    resuming  rolling_back stopping
create      starting refuse    refuse       refuse       refuse    refuse    refuse    refuse    refuse       refuse
kill        missing  interrupt stopping     interrupt    interrupt interrupt stopping  interrupt interrupt    join
pause       missing  missing   pausing      wait         wait      join      refuse    refuse    wait         missing
resume      missing  missing   already      already      already   wait      resuming  join      wait         missing
snapshot    missing  missing   snapshotting wait         wait      refuse    refuse    wait      wait         missing
fork        missing  missing   forking      wait         wait      refuse    refuse    wait      wait         missing
rollback    missing  missing   rolling_back wait         wait      refuse    refuse    wait      wait         missing
lapse       missing  missing   pausing      wait         wait      wait      already   wait      wait         missing
"""


def word(decision: Decision) -> str:
    if isinstance(decision, machine.Start):
        return decision.during.value
    return LETTERS[type(decision)]


def test_every_pair_is_decided_as_written_down() -> None:
    lines = TABLE.strip("\n").splitlines()
    places: list[machine.Place] = [ABSENT if name == "absent" else SandboxState(name) for name in lines[0].split()]
    assert set(places) == set(PLACES)
    written = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert set(written) == {verb.value for verb in Verb}
    for verb in Verb:
        decided = [word(machine.begin(place, verb)) for place in places]
        assert decided == written[verb.value], verb


@pytest.mark.parametrize("state", SandboxState)
def test_deletion_is_never_refused_and_never_waits_for_another_verb(state: SandboxState) -> None:
    assert not isinstance(machine.begin(state, Verb.KILL), machine.Refuse | machine.Wait | machine.Missing)


@pytest.mark.parametrize("verb", Verb)
def test_a_verb_that_starts_can_end_in_each_way_that_its_outcomes_name(verb: Verb) -> None:
    starts = [place for place in PLACES if isinstance(machine.begin(place, verb), machine.Start)]
    assert starts
    if verb is not Verb.KILL:
        assert machine.finish(verb, Outcome.ROLLED_BACK) in starts


@pytest.mark.parametrize("verb", Verb)
def test_no_transition_is_skipped_a_verb_starts_at_rest_and_ends_at_rest(verb: Verb) -> None:
    at_rest = {ABSENT, S.RUNNING, S.PAUSED}
    for place in PLACES:
        if isinstance(machine.begin(place, verb), machine.Start):
            assert place in at_rest
    assert machine.finish(verb, Outcome.DONE) in at_rest


def test_what_clients_see_of_a_state() -> None:
    assert ROUTABLE_STATES < RUNNING_STATES
    assert not RUNNING_STATES & PAUSED_STATES
    assert set(SandboxState) - RUNNING_STATES - PAUSED_STATES == {S.STARTING, S.STOPPING}


@pytest.mark.parametrize(
    "verb, outcome",
    [(Verb.KILL, Outcome.ROLLED_BACK), (Verb.PAUSE, Outcome.LOST), (Verb.RESUME, Outcome.LAPSED)],
)
def test_an_outcome_that_a_verb_cannot_have_is_our_own_error(verb: Verb, outcome: Outcome) -> None:
    with pytest.raises(Bug, match=f"{verb} cannot end as {outcome}"):
        machine.finish(verb, outcome)
