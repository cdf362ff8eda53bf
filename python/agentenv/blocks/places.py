"""Where the block daemon of a home keeps what."""

from dataclasses import dataclass
from pathlib import Path


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
