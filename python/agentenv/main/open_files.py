"""How many files this process may have open: each client connection is one, and so is its way on into a guest."""

import resource

from agentenv.base import log

_log = log.get("main")
# A monitor takes five of ours; records, pools and short commands take the rest.
_BY_SANDBOX = 8
_OWN = 256


def raise_limit(*, connections: int, sandboxes: int) -> int:
    """Use all that the system grants, say so when that cannot be enough, and return it.

    The usual soft limit of 1024 is for programs that use select(), and is reached by one busy client. Without a free
    descriptor, not even a machine can be ended safely.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = 2 * connections + _BY_SANDBOX * sandboxes + _OWN
    if hard != resource.RLIM_INFINITY and hard < wanted:
        _log.warning("open_files_scarce", limit=hard, wanted=wanted, remedy="raise LimitNOFILE, or lower the limits")
    return hard
