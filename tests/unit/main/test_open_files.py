"""The server takes all the descriptors that it may have, and says when they are too few."""

import resource
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from agentenv.main.open_files import raise_limit


@pytest.fixture(autouse=True)
def low_limit() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_all_that_the_system_grants_is_used(low_limit: int) -> None:
    with capture_logs() as logged:
        assert raise_limit(connections=10, sandboxes=1) == low_limit

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low_limit, low_limit)
    assert logged == []


def test_too_few_are_said_so(low_limit: int) -> None:
    with capture_logs() as logged:
        raise_limit(connections=low_limit, sandboxes=1)

    (line,) = logged
    assert line["event"] == "open_files_scarce"
    assert line["wanted"] > low_limit == line["limit"]
