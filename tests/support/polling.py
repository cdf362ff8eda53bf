"""Waiting for real processes, which send no event for what is waited for."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, seconds: float = 60) -> None:
    """Return when `condition()` holds; fail when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
