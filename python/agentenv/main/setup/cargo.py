"""Builds our static Rust programs from the checkout, and says what they are made from."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from agentenv.base import process
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.step import Say

_BUILD_FILES = ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml")
_BUILD_SECONDS = 1800


async def build(context: Context, crate: str, profile: str, say: Say) -> Path:
    """Compile the program of `crate` and return it. Raises `SetupFailed` where there is nothing to compile with."""
    assert context.checkout is not None, "without a checkout there is nothing to build"
    if shutil.which("cargo") is None:
        raise SetupFailed("cargo is not installed; run `make setup`, which brings it, or set the program's path")
    say(f"compiling {crate}")
    triple = f"{context.architecture}-unknown-linux-gnu"
    target = context.checkout / "target" / "static"
    command = ["cargo", "build", "--locked", "--profile", profile, "-p", crate, "--target", triple]
    if context.offline:
        command.append("--offline")
    await process.run(
        [*command, "--target-dir", target],
        cwd=context.checkout,
        environment=os.environ | {"RUSTFLAGS": "-C target-feature=+crt-static"},
        timeout_seconds=_BUILD_SECONDS,
    )
    return target / triple / profile / crate


def inputs(context: Context, configured: Path | None, crates: Sequence[str]) -> str | None:
    """Return a digest of what a program is made from, or None when there is nothing to make it from.

    That is the `configured` file, or else the sources of `crates` in the checkout.
    """
    if configured is not None:
        sources = [configured]
    elif context.checkout is not None:
        sources = [context.checkout / name for name in _BUILD_FILES]
        for crate in crates:
            directory = context.checkout / "crates" / crate
            sources += sorted(path for path in (directory / "src").rglob("*") if path.is_file())
            sources.append(directory / "Cargo.toml")
    else:
        return None
    digest = hashlib.sha256(str(context.architecture).encode())
    for path in sources:
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes() if path.is_file() else b"absent")
    return digest.hexdigest()
