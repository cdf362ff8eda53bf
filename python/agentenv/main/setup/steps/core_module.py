"""Step: the Rust half of this package, compiled from this checkout. What is loaded stays until the next start."""

import importlib.util
import os
import shutil
from pathlib import Path

from agentenv.base import process
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.step import Finding, Say

_MODULE = "agentenv_core"
_BUILD_SECONDS = 1800


class CoreModule:
    """Keeps the module that works on layers."""

    name = "core module"

    def __init__(self, context: Context) -> None:
        self._context = context

    async def inspect(self) -> Finding:
        """Ask the build whether the module is made from the sources of now; without sources, look for it."""
        checkout = self._context.checkout
        if checkout is None:
            is_there = importlib.util.find_spec(_MODULE) is not None
            return Finding(is_there, "installed" if is_there else f"{_MODULE} is not installed")
        try:
            await process.run([_program(checkout), "--check"])
        except process.CommandFailed:
            return Finding(False, f"{_MODULE} is missing or older than its sources")
        return Finding(True, f"{_MODULE} fits its sources")

    async def perform(self, say: Say) -> str:
        """Build the module; nothing happens when it is current."""
        checkout = self._context.checkout
        if checkout is None:
            raise SetupFailed(f"this is no source checkout, so {_MODULE} must be installed with the package")
        if shutil.which("cargo", path=_search_path(checkout)) is None:
            raise SetupFailed("cargo is not installed; run `make setup`, which brings it")
        say(f"compiling {_MODULE}")
        options = ["--offline"] if self._context.offline else []
        await process.run([_program(checkout), *options], timeout_seconds=_BUILD_SECONDS)
        return "compiled"


def _program(checkout: Path) -> Path:
    return checkout / "scripts" / "build-core"


def _search_path(checkout: Path) -> str:
    # Where the bootstrap puts a toolchain that the system has under other names.
    return f"{checkout / 'build' / 'rust' / 'bin'}:{os.environ.get('PATH', os.defpath)}"
