"""Which Python client the tests of this session drive."""

import os
from importlib.metadata import version

SYNCHRONOUS, ASYNCHRONOUS, OLDER = "python", "python-async", "python-older"
OLDER_VERSION = "2.45.1"
NEWEST_VERSION = "2.63.0"
# Set in the session in which an older client stands in front of the newest.
_ONLY = "AENV_CONTRACT_CLIENT"


def names() -> list[str]:
    """Return the names of the clients that this session tests."""
    only = os.environ.get(_ONLY)
    return [SYNCHRONOUS, ASYNCHRONOUS] if only is None else [only]


def environment_of_older() -> dict[str, str]:
    """Return what tells a child session to drive the older client."""
    return {_ONLY: OLDER}


def expected_version(name: str) -> str:
    """Return the version that a client of this name has."""
    return OLDER_VERSION if name == OLDER else NEWEST_VERSION


def installed_version() -> str:
    """Return the version of the client that is imported here."""
    return version("e2b")
