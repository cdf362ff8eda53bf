"""Pages and their tokens."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.api.errors import RequestInvalid
from agentenv.api.pages import Cursor, cut_page, decode_token, encode_token
from agentenv.base.ids import SandboxId
from agentenv.orchestrator.base import Order, Sandbox
from support.fake_orchestrator import FakeOrchestrator

ORDERS = st.sampled_from(Order)
START = datetime(2026, 1, 1, tzinfo=UTC)
ONE = FakeOrchestrator().add()


@given(st.datetimes(timezones=st.just(UTC)), st.from_regex(r"i[a-z0-9]{19}", fullmatch=True), ORDERS)
def test_a_token_names_what_it_was_made_of(started_at: datetime, sandbox_id: str, order: Order) -> None:
    cursor = Cursor(started_at, sandbox_id, order)
    assert decode_token(encode_token(cursor), order) == cursor


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()), ORDERS)
def test_any_other_token_is_refused(token: str, order: Order) -> None:
    with pytest.raises(RequestInvalid):
        decode_token(token, order)


@pytest.mark.parametrize("text", ["2026-13-01T00:00:00.000000000Z__iabc", "2026-01-01T00:00:00.000000000Z__I;DROP"])
def test_a_token_that_only_looks_like_one_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        decode_token(base64.urlsafe_b64encode(text.encode()).decode(), Order.DESCENDING)


def test_a_token_of_the_other_order_is_refused() -> None:
    token = encode_token(Cursor(START, "iabc", Order.ASCENDING))
    with pytest.raises(RequestInvalid):
        decode_token(token, Order.DESCENDING)


@given(st.lists(st.integers(0, 3), max_size=12), ORDERS, st.integers(1, 5))
def test_pages_show_each_sandbox_once_and_in_order(seconds: list[int], order: Order, limit: int) -> None:
    sandboxes = _sorted(
        [
            replace(ONE, id=SandboxId(f"i{index:019}"), started_at=START + timedelta(seconds=second))
            for index, second in enumerate(seconds)
        ],
        order,
    )
    shown: list[Sandbox] = []
    cursor = None
    while True:
        page, cursor = cut_page(sandboxes, order, cursor, limit)
        shown += page
        if cursor is None:
            break
        assert len(page) == limit
    assert shown == sandboxes


def test_a_sandbox_that_went_away_does_not_shift_the_next_page() -> None:
    sandboxes = [replace(ONE, id=SandboxId(f"i{n:019}"), started_at=START + timedelta(seconds=n)) for n in range(4)]
    _, cursor = cut_page(sandboxes, Order.ASCENDING, None, 2)
    page, _ = cut_page(sandboxes[2:], Order.ASCENDING, cursor, 2)
    assert page == sandboxes[2:]


def _sorted(sandboxes: list[Sandbox], order: Order) -> list[Sandbox]:
    return sorted(sandboxes, key=lambda one: (one.started_at, one.id), reverse=order is Order.DESCENDING)
