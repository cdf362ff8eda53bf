"""Step: the guest daemon, from a configured file or built from this checkout. Kept under `boot/` by its inputs."""

import hashlib
import os
import shutil
from pathlib import Path

from agentenv.base import files, process
from agentenv.base.units import format_bytes
from agentenv.guest import initramfs
from agentenv.guest.errors import BootFileRefused
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.step import Finding, Say

_CRATE = "aenv-guest"
_BUILD_FILES = ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml")
_BUILD_SECONDS = 1800
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
        binary = self._context.guest.binary_path or await self._build(say)
        if not binary.is_file():
            raise BootFileRefused(f"guest.binary_path {binary} is no file")
        initramfs.check_daemon(binary, self._context.architecture)
        content = binary.read_bytes()
        files.write_atomically(target, content, mode=0o755)
        return f"{target.name}, {format_bytes(len(content))}"

    async def _build(self, say: Say) -> Path:
        checkout = self._context.checkout
        assert checkout is not None, "without a checkout and without a file there is no path to build"
        if shutil.which("cargo") is None:
            raise SetupFailed("cargo is not installed; run `make setup`, which brings it, or set guest.binary_path")
        say("compiling aenv-guest")
        triple = f"{self._context.architecture}-unknown-linux-gnu"
        target = checkout / "target" / "static"
        command = ["cargo", "build", "--locked", "--profile", "guest", "-p", _CRATE, "--target", triple]
        if self._context.offline:
            command.append("--offline")
        await process.run(
            [*command, "--target-dir", target],
            cwd=checkout,
            environment=os.environ | {"RUSTFLAGS": "-C target-feature=+crt-static"},
            timeout_seconds=_BUILD_SECONDS,
        )
        return target / triple / "guest" / _CRATE

    def _path(self) -> Path | None:
        inputs = self._inputs()
        return None if inputs is None else self._context.home / "boot" / f"{_KIND}-{inputs[:16]}"

    def _inputs(self) -> str | None:
        """Return a digest of what the daemon is made from, or None when there is nothing to make it from."""
        sources: list[Path]
        if self._context.guest.binary_path is not None:
            sources = [self._context.guest.binary_path]
        elif self._context.checkout is not None:
            crate = self._context.checkout / "crates" / _CRATE
            sources = [self._context.checkout / name for name in _BUILD_FILES]
            sources += sorted(path for path in (crate / "src").rglob("*") if path.is_file())
            sources.append(crate / "Cargo.toml")
        else:
            return None
        digest = hashlib.sha256(str(self._context.architecture).encode())
        for path in sources:
            digest.update(f"\0{path.name}\0".encode())
            digest.update(path.read_bytes() if path.is_file() else b"absent")
        return digest.hexdigest()
