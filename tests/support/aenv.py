"""The command `aenv` as a child process, the way a user starts it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

ENTRY = "from agentenv.cli.group import client_group; client_group(prog_name='aenv')"
_PACKAGES = Path(__file__).resolve().parents[2] / "python"


@dataclass(frozen=True)
class Finished:
    """What a run left behind."""

    code: int
    stdout: bytes
    stderr: bytes


def arguments(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-W", "error", "-c", ENTRY, *words]


def environment(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nothing of this machine's own configuration is seen."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(home), "AENV_HOME": str(home), "PYTHONPATH": str(_PACKAGES), **extra}


@asynccontextmanager
async def started(
    *words: str, environment: Mapping[str, str], stdin: int = asyncio.subprocess.DEVNULL
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start `aenv` and kill it when the context is left before its end."""
    child = await asyncio.create_subprocess_exec(
        *arguments(words),
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        limit=2**24,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def run_aenv(*words: str, environment: Mapping[str, str], stdin: bytes | None = None) -> Finished:
    """Run `aenv` to its end."""
    feed = asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE
    async with started(*words, environment=environment, stdin=feed) as child, asyncio.timeout(60):
        stdout, stderr = await child.communicate(stdin)
        assert child.returncode is not None
        return Finished(child.returncode, stdout, stderr)


async def run_python(script: str) -> Finished:
    """Run a script in an interpreter that has imported nothing yet."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(_PACKAGES)},
    )
    stdout, stderr = await child.communicate()
    assert child.returncode is not None
    return Finished(child.returncode, stdout, stderr)
