"""What only one server of a host may have: the names of its slots, and the user ids of its monitors."""

import contextlib
import fcntl
import os
from pathlib import Path

from agentenv.base.errors import Conflict, Unavailable
from agentenv.network.settings import NetworkSettings

_DIRECTORY = Path("/run/agentenv")


class PrefixInUse(Conflict):
    """Another server of this host names its slots as this one would, and would lose them to it."""

    code = "network_prefix_in_use"


class UserIdsInUse(Conflict):
    """Monitors of another server of this host have the user ids of this one's, and could reach their disks."""

    code = "user_ids_in_use"


class ClaimImpossible(Unavailable):
    """The claims of this host's servers cannot be read or written."""

    code = "claim_impossible"


class HostClaim:
    """Holds names and user ids for this process; the kernel lets go of them when it dies, however it dies."""

    def __init__(self, network: NetworkSettings, directory: Path = _DIRECTORY) -> None:
        with contextlib.ExitStack() as stack:
            try:
                directory.mkdir(mode=0o755, parents=True, exist_ok=True)
                names = _open(directory / f"prefix-{network.prefix}", stack)
                user_ids = _open(directory / "user-ids", stack)
            except OSError as error:
                raise ClaimImpossible(f"{error.filename or directory} cannot be used: {error.strerror}") from error
            try:
                fcntl.flock(names, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise PrefixInUse(
                    f"another server of this host uses network.prefix = {network.prefix}; give this one another"
                ) from error
            try:
                # One byte of the file stands for each user id, so that ranges which overlap meet.
                fcntl.lockf(user_ids, fcntl.LOCK_EX | fcntl.LOCK_NB, network.max_slots, network.uid_base)
            except OSError as error:
                last = network.uid_base + network.max_slots - 1
                raise UserIdsInUse(
                    f"another server of this host uses user ids between {network.uid_base} and {last}; "
                    "give this one another network.uid_base"
                ) from error
            self._held = stack.pop_all()

    def release(self) -> None:
        """Let go."""
        self._held.close()


def _open(path: Path, stack: contextlib.ExitStack) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, descriptor)
    return descriptor
