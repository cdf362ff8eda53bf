"""The real guest daemon as a process of this machine, on a loopback port."""

import asyncio
import os
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

_CHECKOUT = Path(__file__).resolve().parents[2]
_READY = "aenv-guest: ready on "


def find_daemon() -> Path:
    """Return the built daemon; skips the test when there is none. AENV_TEST_DAEMON names another one."""
    built = _CHECKOUT / "target/static" / f"{platform.machine()}-unknown-linux-gnu/guest/aenv-guest"
    path = Path(os.environ.get("AENV_TEST_DAEMON", built))
    if not path.is_file():
        pytest.skip("no guest daemon is built: run `make setup`")
    return path


@asynccontextmanager
async def running_daemon(state: Path) -> AsyncIterator[str]:
    """Run the daemon and give its base URL."""
    child = await asyncio.create_subprocess_exec(
        *(find_daemon(), "daemon", "--listen", "127.0.0.1", "--port", "0", "--state-directory", state),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(30):
            assert child.stdout is not None
            line = (await child.stdout.readline()).decode().strip()
        assert line.startswith(_READY), line
        yield f"http://{line.removeprefix(_READY)}"
    finally:
        child.kill()
        await child.wait()
