"""The transition table is total, and deletion always wins."""

import pytest

from agentenv.base.errors import Bug
from agentenv.orchestrator import machine
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.machine import ABSENT, Outcome, Verb


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("place", [ABSENT, *SandboxState])
def test_every_pair_has_an_answer(place: machine.Place, verb: Verb) -> None:
    assert machine.begin(place, verb) is not None


def test_kill_is_never_refused_in_a_state_that_this_program_can_reach() -> None:
    reachable = [SandboxState.STARTING, SandboxState.RUNNING, SandboxState.STOPPING]
    assert not any(isinstance(machine.begin(state, Verb.KILL), machine.Refuse) for state in reachable)


def test_create_leads_to_running_or_to_nothing() -> None:
    assert machine.finish(Verb.CREATE, Outcome.DONE) is SandboxState.RUNNING
    assert machine.finish(Verb.CREATE, Outcome.ROLLED_BACK) is ABSENT
    assert machine.finish(Verb.CREATE, Outcome.LOST) is ABSENT


def test_a_kill_cannot_be_rolled_back() -> None:
    with pytest.raises(Bug, match="kill cannot end as rolled_back"):
        machine.finish(Verb.KILL, Outcome.ROLLED_BACK)
