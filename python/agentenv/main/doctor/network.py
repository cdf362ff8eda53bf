"""Checks of the network, by what `network` tries for real. Only gives its findings their keys."""

import re
from collections.abc import Sequence

from agentenv.main.doctor.check import Check, State
from agentenv.network import probe
from agentenv.network.settings import NetworkSettings


async def examine_network(settings: NetworkSettings) -> Sequence[Check]:
    """Make a namespace with links and rules, look at the host's rules and resolver, and remove it all again."""
    return [_to_check(fact) for fact in await probe.probe(settings)]


def _to_check(fact: probe.Fact) -> Check:
    key = re.sub(r"[^a-z]+", "_", fact.subject.lower())
    if fact.is_ok:
        return Check(key, State.OK, fact.detail)
    value, _, remedy = fact.detail.partition("; ")
    return Check(key, State.MISSING if fact.is_required else State.WARNING, value, remedy or "see the message")
