"""When a request to the control plane is worth another try, and after how long (e2b-contract 1.7). Pure."""

from collections.abc import Mapping

RETRIES_LIMIT = 3
_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_FIRST_DELAY_SECONDS = 0.1
# A person waits in front of the command: a server that wants more patience than this is reported instead.
_PATIENCE_SECONDS = 10.0


def retry_delay(status: int, headers: Mapping[str, str], attempt: int) -> float | None:
    """Return the seconds to wait before try number `attempt` + 2, or None when the answer is final."""
    if attempt >= RETRIES_LIMIT or not _is_retried(status, headers.get("Should-Retry")):
        return None
    delay = retry_after_seconds(headers)
    if delay is None:
        return min(_FIRST_DELAY_SECONDS * (1 << attempt), _PATIENCE_SECONDS)
    return delay if delay <= _PATIENCE_SECONDS else None


def retry_after_seconds(headers: Mapping[str, str]) -> int | None:
    """Return what `Retry-After` asks for, when it is a number of seconds."""
    text = headers.get("Retry-After", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _is_retried(status: int, should_retry: str | None) -> bool:
    if should_retry is None:
        return status in _RETRIED_STATUSES
    return should_retry.lower() == "true" and status >= 400
