"""Where the block daemon of a home keeps what, and the mount points among it. Reads only."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.process import ProcessIdentity, identify

_STATE_OPTION = "--state"


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of one block daemon, all below `root`. Its state directory is what it is known by."""

    root: Path

    @property
    def state(self) -> Path:
        """The daemon's table of images, its log and its control socket."""
        return self.root / "state"

    @property
    def control(self) -> Path:
        """The daemon's control socket."""
        return self.state / "control"

    @property
    def log(self) -> Path:
        """What the daemon writes."""
        return self.state / "blockd.log"

    @property
    def mount(self) -> Path:
        """Where images appear as files. Monitors run as other users, so all may pass through."""
        return self.root / "mount"

    @property
    def cache(self) -> Path:
        """Blocks of remote layers."""
        return self.root / "cache"

    @property
    def writable(self) -> Path:
        """One directory per sandbox: its writable layer, and what was sealed of it."""
        return self.root / "writable"

    def make(self) -> None:
        """Create what is not there. Only the way to the mount is open to other users."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)
        for directory in (self.state, self.cache, self.writable):
            directory.mkdir(exist_ok=True)
            directory.chmod(0o700)


def find_daemons(state: Path) -> list[ProcessIdentity]:
    """Return every process of the block daemon with this state directory: its supervisor and its server."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are wanted, not paths
        if name.isdecimal():
            # Identified first: a number that changes hands in between then fails the comparison of start times.
            identity = identify(int(name))
            if identity is not None and is_daemon(identity, state):
                found.append(identity)
    return found


def is_daemon(identity: ProcessIdentity, state: Path) -> bool:
    """Return whether this process is alive and is one of the block daemon's."""
    try:
        words = Path(f"/proc/{identity.pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    wanted = os.fsencode(state)
    pairs = itertools.pairwise(words)
    return any(pair == (_STATE_OPTION.encode(), wanted) for pair in pairs) and identity.is_alive()
