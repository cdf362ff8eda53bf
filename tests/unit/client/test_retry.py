import pytest

from agentenv.client.retry import RETRIES_LIMIT, retry_delay


@pytest.mark.parametrize(
    "status, headers, expected",
    [
        (503, {}, 0.1),
        (429, {"Retry-After": "2"}, 2),
        (500, {}, None),
        (500, {"Should-Retry": "true"}, 0.1),
        (503, {"Should-Retry": "false"}, None),
        (503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0.1),
        (503, {"Retry-After": "-1"}, 0.1),
        (503, {"Retry-After": "11"}, None),
        (404, {}, None),
    ],
)
def test_first_failure(status: int, headers: dict[str, str], expected: float | None) -> None:
    assert retry_delay(status, headers, 0) == expected


def test_delays_grow_and_end() -> None:
    delays = [retry_delay(503, {}, attempt) for attempt in range(RETRIES_LIMIT + 1)]

    assert delays == [0.1, 0.2, 0.4, None]
