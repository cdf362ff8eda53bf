"""The data plane runs on both event loops: uvloop serves, asyncio is what others may embed it in."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    del config, item
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
