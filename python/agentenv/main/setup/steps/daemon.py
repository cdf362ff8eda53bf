"""Step: the guest daemon, from a configured file or built from this checkout. Kept under `boot/` by its inputs."""

from pathlib import Path

from agentenv.base import files
from agentenv.base.units import format_bytes
from agentenv.guest import initramfs
from agentenv.guest.errors import BootFileRefused
from agentenv.main.setup import cargo
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.step import Finding, Say

_CRATE = "aenv-guest"
_KIND = "daemon"


class GuestDaemon:
    """Keeps the program that is the first process of every guest."""

    name = "guest daemon"

    def __init__(self, context: Context) -> None:
        self._context = context

    def find(self) -> Path | None:
        """Return the daemon for the inputs of now, if it is there."""
        path = self._path()
        return path if path is not None and path.is_file() else None

    async def inspect(self) -> Finding:
        """Look for a daemon made from the same file or the same sources."""
        found = self.find()
        return Finding(True, found.name) if found else Finding(False, "no guest daemon is prepared")

    async def perform(self, say: Say) -> str:
        """Build the daemon, or take the configured one, and keep a copy."""
        target = self._path()
        if target is None:
            raise SetupFailed("this is no source checkout, so guest.binary_path must name the guest daemon")
        binary = self._context.guest.binary_path or await cargo.build(self._context, _CRATE, "guest", say)
        if not binary.is_file():
            raise BootFileRefused(f"guest.binary_path {binary} is no file")
        initramfs.check_daemon(binary, self._context.architecture)
        content = binary.read_bytes()
        files.write_atomically(target, content, mode=0o755)
        return f"{target.name}, {format_bytes(len(content))}"

    def _path(self) -> Path | None:
        inputs = cargo.inputs(self._context, self._context.guest.binary_path, (_CRATE,))
        return None if inputs is None else self._context.home / "boot" / f"{_KIND}-{inputs[:16]}"
