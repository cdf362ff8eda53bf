"""Logging: events in snake_case with facts as fields, as lines for people or as JSON for machines."""

import contextlib
import io
import logging
import sys
from enum import StrEnum
from typing import TextIO, cast

import structlog


class LogFormat(StrEnum):
    """How a log line looks."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important event that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Forgiving(io.TextIOBase):
    """Standard error for log lines. A disk that is full or a reader that has gone costs the line, never the work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def configure(level: LogLevel, log_format: LogFormat) -> None:
    """Set up logging for this process; called once, by `main`. Everything goes to standard error."""
    text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if text else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _Forgiving(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")


def get(package: str) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of `package`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(package=package)
    return logger
