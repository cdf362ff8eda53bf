"""The address plan, as properties."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentenv.network.plan import AddressPlan
from agentenv.network.settings import NetworkSettings

PLAN = AddressPlan("aenv", IPv4Network("10.203.0.0/16"), 16384, 310_000)
indexes = st.integers(0, PLAN.max_slots - 1)


@given(indexes)
def test_a_slot_lies_within_the_network_and_its_two_ends_share_a_link(index: int) -> None:
    slot = PLAN.slot(index)
    link = IPv4Network((int(slot.address) & ~3, 30))
    assert link.subnet_of(PLAN.network)
    assert list(link.hosts()) == [slot.host_address, slot.address]


@given(indexes, indexes)
def test_slots_share_nothing(one: int, other: int) -> None:
    first, second = PLAN.slot(one), PLAN.slot(other)
    if one != other:
        assert {first.address, first.host_address}.isdisjoint({second.address, second.host_address})
        assert first.name != second.name
        assert first.owner != second.owner


@given(indexes)
def test_the_index_can_be_read_from_the_name(index: int) -> None:
    name = PLAN.slot(index).name
    assert PLAN.index_of(name) == index
    assert PLAN.is_ours(name)
    assert len(name) <= 15


@given(st.text(max_size=20))
def test_only_exact_names_are_ours(name: str) -> None:
    index = PLAN.index_of(name)
    assert index is None or PLAN.name(index) == name


@pytest.mark.parametrize("name", ["aenv", "aenv0", "aenvb-0", "aenv-", "aenv-01", "aenv-1x", "aenv-1\n", "xaenv-1"])
def test_names_of_others_are_not_ours(name: str) -> None:
    assert not PLAN.is_ours(name)


@pytest.mark.parametrize("index", [-1, 16384])
def test_an_index_outside_the_plan_is_refused(index: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        PLAN.slot(index)


def test_the_defaults_are_valid_and_have_room() -> None:
    settings = NetworkSettings()
    assert settings.prefix == "aenv"
    assert settings.network == IPv4Network("10.203.0.0/16")


@pytest.mark.parametrize(
    "changes",
    [
        {"network": "10.203.0.0/31"},
        {"network": "10.203.0.0/24", "max_slots": 65},
        {"network": "169.254.0.0/16"},
        {"network": "127.0.0.0/16"},
        {"network": "8.8.0.0/16"},
        {"prefix": ""},
        {"prefix": "with-dash"},
        {"prefix": "averylongname"},
        {"prefix": "Upper"},
        {"network": "10.0.0.0/8", "max_slots": 100_000},
        {"ready_slots_low": 9},
        {"max_slots": 4},
        {"dns_servers": ["127.0.0.53"]},
        {"dns_servers": ["resolver.example"]},
        {"max_connections_per_slot": 0},
        {"unknown": 1},
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        NetworkSettings.model_validate(changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"network": "10.203.0.0/30", "max_slots": 1, "ready_slots_low": 0, "ready_slots_high": 1},
        {"network": "10.203.0.0/24", "max_slots": 64},
        {"prefix": "ninechars"},
    ],
)
def test_settings_at_the_edge_are_accepted(changes: dict[str, object]) -> None:
    settings = NetworkSettings.model_validate(changes)
    plan = AddressPlan(settings.prefix, settings.network, settings.max_slots, settings.uid_base)
    assert plan.slot(settings.max_slots - 1).address in settings.network
