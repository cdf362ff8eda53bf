"""The real guest daemon as a process of this machine, on a loopback port."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.server import prepared_daemon

_READY = "aenv-guest: ready on "


def find_daemon() -> Path:
    """Return the daemon that `aenv setup` prepared, which guests run, too. AENV_TEST_DAEMON names another one."""
    named = os.environ.get("AENV_TEST_DAEMON")
    return Path(named) if named else prepared_daemon()


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
