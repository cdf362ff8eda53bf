"""Errors of `objects`.

AgentEnvError
├── Invalid
│   └── StoreUnfit         the storage cannot keep what we promise on it
├── Conflict
│   └── CellChanged        somebody else wrote the cell first
├── Exhausted
│   └── StoreFull          the storage takes no more
├── Unavailable
│   └── StoreUnavailable   the storage does not answer, or refuses
└── Corrupt
    └── CellDamaged        a cell is larger than any that we write, or not one of ours
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from agentenv.base.errors import Conflict, Corrupt, Exhausted, Invalid, Unavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class StoreUnfit(Invalid):
    """The storage cannot keep what we promise on it."""

    code = "store_unfit"


class CellChanged(Conflict):
    """Somebody else wrote the cell first."""

    code = "cell_changed"


class StoreFull(Exhausted):
    """The storage takes no more."""

    code = "store_full"


class StoreUnavailable(Unavailable):
    """The storage does not answer, or refuses."""

    code = "store_unavailable"


class CellDamaged(Corrupt):
    """A cell is larger than any that we write, or not one of ours."""

    code = "cell_damaged"


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what the operating system raises while we do `what` into our errors."""
    try:
        yield
    except OSError as error:
        kind = StoreFull if error.errno in _FULL else StoreUnavailable
        raise kind(f"{what} failed: {error.strerror or error}") from error
