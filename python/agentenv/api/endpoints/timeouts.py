"""The bounds of every timeout that a client may ask for."""

from agentenv.api.errors import RequestInvalid
from agentenv.api.settings import ApiSettings


def check_timeout(timeout_seconds: int, settings: ApiSettings, *, least: int = 0) -> int:
    """Return `timeout_seconds` when it may be asked for. Raises `RequestInvalid`."""
    if not least <= timeout_seconds <= settings.max_timeout_seconds:
        raise RequestInvalid(f"timeout must be from {least} to {settings.max_timeout_seconds} seconds")
    return timeout_seconds
