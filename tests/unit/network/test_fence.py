"""What may leave, as the model says it and as the rules are written."""

import json
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.network.base import GuestIdentity
from agentenv.network.fence import CLOSED_RANGES, Fence, without_overlaps
from agentenv.network.plan import AddressPlan
from agentenv.network.rules import host_ruleset, slot_ruleset

PLAN = AddressPlan("aenv", IPv4Network("10.203.0.0/16"), 64, 310_000)
addresses = st.builds(IPv4Address, st.integers(0, 2**32 - 1))
networks = st.builds(
    lambda address, length: IPv4Network((address, length), strict=False), st.integers(0, 2**32 - 1), st.integers(4, 32)
)


def commands_of(transaction: bytes) -> list[dict[str, Any]]:
    commands: list[dict[str, Any]] = json.loads(transaction)["nftables"]
    return commands


def slot_commands(fence: Fence) -> list[dict[str, Any]]:
    return commands_of(slot_ruleset(PLAN.slot(3), GuestIdentity(), fence))


def written_decision(fence: Fence, address: IPv4Address) -> bool:
    """Walk the egress chain as nft does, for a plain online connection to `address`."""
    commands = [command["add"] for command in slot_commands(fence) if "add" in command]
    sets = {entry["set"]["name"]: entry["set"]["elem"] for entry in commands if "set" in entry}
    for rule in (entry["rule"] for entry in commands if "rule" in entry and entry["rule"]["chain"] == "egress"):
        *conditions, verdict = rule["expr"]
        named = [c["match"]["right"] for c in conditions if "match" in c and str(c["match"]["right"]).startswith("@")]
        if named:
            members = [IPv4Network((e["prefix"]["addr"], e["prefix"]["len"])) for e in sets[named[0][1:]]]
            if any(address in member for member in members):
                return "accept" in verdict
        elif not conditions:
            return "accept" in verdict
    raise AssertionError("the chain has no last word")


@given(st.lists(networks, max_size=4), st.lists(networks, max_size=4), addresses)
def test_the_rules_decide_as_the_model_does(
    denied: list[IPv4Network], allowed: list[IPv4Network], address: IPv4Address
) -> None:
    fence = Fence(denied=tuple(denied), allowed=tuple(allowed))
    for tried in (address, *(network.network_address for network in (*denied, *allowed))):
        assert written_decision(fence, tried) == fence.decide(tried)


@pytest.mark.parametrize("network", CLOSED_RANGES, ids=str)
def test_both_ends_of_every_closed_range_are_refused(network: IPv4Network) -> None:
    assert not Fence().decide(network.network_address)
    assert not Fence().decide(network.broadcast_address)


@pytest.mark.parametrize("address", ["1.1.1.1", "9.255.255.255", "11.0.0.0", "172.32.0.0", "192.167.255.255"])
def test_the_public_internet_is_open(address: str) -> None:
    assert Fence().decide(IPv4Address(address))


@given(st.lists(networks, max_size=6), addresses)
def test_removing_overlaps_changes_no_member(members: list[IPv4Network], address: IPv4Address) -> None:
    merged = without_overlaps(members)
    assert any(address in network for network in merged) == any(address in network for network in members)
    assert not any(one.overlaps(other) for one in merged for other in merged if one is not other)


@pytest.mark.parametrize(
    "transaction", [slot_ruleset(PLAN.slot(0), GuestIdentity(), Fence()), host_ruleset(PLAN, Fence())]
)
def test_a_table_replaces_its_predecessor_in_one_transaction(transaction: bytes) -> None:
    begin = [next(iter(command)) for command in commands_of(transaction)[:3]]
    assert begin == ["add", "delete", "add"]
    assert all("table" in command[verb] for verb, command in zip(begin, commands_of(transaction), strict=False))


def test_without_a_resolver_no_rule_speaks_of_port_53() -> None:
    assert "53" not in {
        str(expression["match"]["right"])
        for command in slot_commands(Fence())
        for expression in command.get("add", {}).get("rule", {}).get("expr", [])
        if "match" in expression
    }


def test_the_rules_of_the_host_name_no_slot() -> None:
    text = host_ruleset(PLAN, Fence()).decode()
    assert "aenv-*" in text
    assert not any(PLAN.slot(index).name in text for index in range(PLAN.max_slots))
