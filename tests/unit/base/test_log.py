"""Logging is never the reason why work fails."""

import io
import json
import sys
from collections.abc import Iterator

import pytest
import structlog

from agentenv.base import log
from agentenv.base.log import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def plain_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()


class FullDisk(io.StringIO):
    """A stream whose disk is full until the test makes room."""

    is_full = True

    def write(self, text: str, /) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_full_disk_costs_the_line_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FullDisk()
    monkeypatch.setattr(sys, "stderr", stream)
    log.configure(LogLevel.INFO, LogFormat.JSON)

    log.get("test").info("line_lost")
    stream.is_full = False
    log.get("test").info("line_kept", fact=1)

    line = json.loads(stream.getvalue())
    assert (line["event"], line["fact"], line["package"]) == ("line_kept", 1, "test")


def test_a_stream_that_was_closed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    log.configure(LogLevel.INFO, LogFormat.TEXT)
    stream.close()

    log.get("test").error("line_lost")
    assert stream.closed
