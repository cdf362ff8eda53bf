"""The home directory: who may use it (one server at a time), and where each thing lies in it."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.errors import Conflict, Unavailable
from agentenv.blocks.places import Places


class HomeInUse(Conflict):
    """Another server uses this home directory."""

    code = "home_in_use"


class HomeUnusable(Unavailable):
    """The home directory cannot be made or written."""

    code = "home_unusable"


@dataclass(frozen=True, slots=True)
class Home:
    """The paths below one server's home directory."""

    path: Path

    @property
    def api_key(self) -> Path:
        """The API key that was generated at the first start."""
        return self.path / "api-key"

    @property
    def records(self) -> Path:
        """The database of records."""
        return self.path / "state.db"

    @property
    def sandboxes(self) -> Path:
        """One directory per sandbox: the monitor's sockets and the guest's console."""
        return self.path / "sandboxes"

    @property
    def blocks(self) -> Places:
        """Everything of the block daemon: its state, its mount, and one directory of writable layers per sandbox."""
        return Places(self.path / "blocks")

    @property
    def programs(self) -> Path:
        """The programs and boot files that setup prepared."""
        return self.path / "boot"

    @property
    def earlier_disks(self) -> Path:
        """Where disks were before they were made of layers."""
        return self.path / "disks"

    @property
    def trials(self) -> Path:
        """Where accelerators are tried, and what came of it is remembered."""
        return self.path / "vmm"

    def make(self) -> None:
        """Create the directory. The monitors run as other users, so all may pass through; few files may be read."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for directory in (self.path, self.sandboxes):
                directory.mkdir(exist_ok=True)
                directory.chmod(0o711)
        except OSError as error:
            raise HomeUnusable(f"the home directory {self.path} cannot be used: {error.strerror}") from error


class HomeLock:
    """Holds a home directory for this process; the kernel lets go of it when the process dies, however it dies."""

    def __init__(self, home: Home) -> None:
        # Close-on-exec is Python's default, so a machine that outlives us never keeps the lock.
        self._descriptor = os.open(home.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise HomeInUse(
                f"another server uses {home.path}: stop it, or start this one with another `home`"
            ) from error

    def release(self) -> None:
        """Let go."""
        os.close(self._descriptor)
