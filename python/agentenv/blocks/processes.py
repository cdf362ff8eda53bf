"""Finding the processes of block daemons among those of this machine. Reads /proc, ends nothing."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.process import ProcessIdentity, identify

_SERVER_WORD = "serve"


@dataclass(frozen=True, slots=True)
class DaemonProcesses:
    """Who of one daemon runs. Supervisor and server replace each other when one dies; either keeps the mount alive."""

    supervisor: ProcessIdentity | None
    servers: tuple[ProcessIdentity, ...]

    @property
    def all(self) -> tuple[ProcessIdentity, ...]:
        """Every process of the daemon."""
        return self.servers if self.supervisor is None else (self.supervisor, *self.servers)

    @property
    def keeper(self) -> ProcessIdentity | None:
        """The process with whose end the daemon's files become useless, unless a server outlives it."""
        return next(iter(self.all), None)


def find_daemon(state: Path) -> DaemonProcesses:
    """Return the processes of the daemon with this state directory."""
    supervisor, servers = None, []
    for identity, words in _processes():
        if not _is_daemon(words, state) or not identity.is_alive():
            continue
        if words[1:2] == [_SERVER_WORD]:
            servers.append(identity)
        else:
            supervisor = identity
    return DaemonProcesses(supervisor, tuple(servers))


def find_programs() -> set[Path]:
    """Return the files of all programs that run on this host, as far as we may see them."""
    found = set()
    for pid in _numbers():
        with contextlib.suppress(OSError):
            found.add(Path(f"/proc/{pid}/exe").readlink())
    return found


def program_of(process: ProcessIdentity) -> Path | None:
    """Return the file that a process runs, or None when that cannot be seen."""
    try:
        return Path(f"/proc/{process.pid}/exe").readlink()
    except OSError:
        return None


def _processes() -> Iterator[tuple[ProcessIdentity, list[str]]]:
    for pid in _numbers():
        # Identified first: a number that changes hands in between then fails the comparison of start times.
        identity = identify(pid)
        with contextlib.suppress(OSError):
            words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
            if identity is not None:
                yield identity, words


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - names are wanted


def _is_daemon(words: list[str], state: Path) -> bool:
    return ("--state", str(state)) in itertools.pairwise(words)
