"""What can go wrong with the network, and the one place where kernel errors become ours.

AgentEnvError
├── Exhausted
│   └── SlotsExhausted     every slot is held
├── NotFound
│   └── SlotLost           a slot of an earlier process is not whole any more
├── Conflict
│   └── RangeInUse         the configured network is already routed elsewhere on this host
└── Unavailable
    └── NetworkFailed      the kernel or nft refused a step
"""

import contextlib
import errno
import os
from collections.abc import Iterator

from pyroute2.netlink.exceptions import NetlinkError

from agentenv.base.errors import Conflict, Exhausted, NotFound, Unavailable
from agentenv.base.process import CommandFailed

_ADVICE = {
    errno.EPERM: "run the server as root, with CAP_SYS_ADMIN and CAP_NET_ADMIN",
    errno.EACCES: "run the server as root, with CAP_SYS_ADMIN and CAP_NET_ADMIN",
    errno.EROFS: "the server needs a writable /proc/sys and /run",
    errno.EOPNOTSUPP: "this kernel lacks the feature",
    errno.ENODEV: "this kernel lacks the device, or it is gone",
    errno.EBUSY: "another process still holds it",
    errno.ENOSPC: "a kernel limit on namespaces or links is reached (see user.max_net_namespaces)",
}


class SlotsExhausted(Exhausted):
    """Every slot is held or cooling down."""

    code = "slots_exhausted"


class SlotLost(NotFound):
    """A slot that an earlier process held is not whole any more."""

    code = "slot_lost"


class RangeInUse(Conflict):
    """The configured network is already routed elsewhere on this host."""

    code = "network_range_in_use"


class NetworkFailed(Unavailable):
    """The kernel or nft refused a step."""

    code = "network_failed"


@contextlib.contextmanager
def translated(step: str) -> Iterator[None]:
    """Turn what the kernel, netlink or a command raises during `step` into `NetworkFailed`."""
    try:
        yield
    except NetlinkError as error:
        raise NetworkFailed(_describe(step, error.code)) from error
    except OSError as error:
        raise NetworkFailed(_describe(step, error.errno or 0)) from error
    except CommandFailed as error:
        raise NetworkFailed(f"{step} failed: {error.message}") from error


def _describe(step: str, number: int) -> str:
    advice = _ADVICE.get(number)
    reason = os.strerror(number) if number else "no reason given"
    return f"{step} failed: {reason}" + (f"; {advice}" if advice else "")
