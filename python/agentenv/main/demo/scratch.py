"""A server of its own for a short time: its home, network and port clash with no other, and nothing of it stays."""

import contextlib
import os
import select
import shutil
import subprocess  # noqa: TID251 - a plain synchronous program without an event loop
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.errors import Unavailable
from agentenv.main.home import Home, HomeInUse, HomeLock
from agentenv.main.keys import new_key
from agentenv.main.settings import Settings

_PREPARED = ("boot", "images", "kernels", "layers")
_START_SECONDS = 120
_STOP_SECONDS = 90


class DemoServerFailed(Unavailable):
    """The server of the demo did not start; the message holds the end of its log."""

    code = "demo_server_failed"


@dataclass(frozen=True, slots=True)
class ScratchServer:
    """A running server: where it listens and what it takes."""

    url: str
    key: str
    home: Home
    process: subprocess.Popen[str]

    @property
    def log(self) -> Path:
        """What the server wrote."""
        return self.home.path / "server.log"


@contextlib.contextmanager
def scratch_home(prepared: Path, name: str) -> Iterator[Home]:
    """Yield the home `name` below another, whose prepared files it borrows, and remove it afterwards.

    Its place is always the same: what a killed program left in it is cleaned by the next one's server.
    """
    home = Home(prepared / name)
    home.make()
    _wait_until_free(home)
    for part in _PREPARED:
        link = home.path / part
        if (prepared / part).exists() and not link.exists():
            link.symlink_to(prepared / part)
    verdicts = prepared / "vmm" / "verdicts.json"
    if verdicts.exists():
        home.trials.mkdir(mode=0o711, exist_ok=True)
        shutil.copy(verdicts, home.trials)
    yield home
    shutil.rmtree(home.path)


def _wait_until_free(home: Home) -> None:
    """Wait for the server of a killed program, which has been told to stop. Raises `HomeInUse` when it stays."""
    deadline = time.monotonic() + _STOP_SECONDS
    while True:
        try:
            HomeLock(home).release()
        except HomeInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)  # noqa: TID251 - a plain synchronous program without an event loop
        else:
            return


@contextlib.contextmanager
def scratch_server(
    home: Home, settings: Settings, extra_environment: Mapping[str, str] | None = None
) -> Iterator[ScratchServer]:
    """Start a server in `home` on a free port, and stop it and wait for its end afterwards."""
    environment = (
        os.environ
        | (extra_environment or {})
        | {
            "AENV_HOME": str(home.path),
            "AENV_API_KEY": new_key(),
            "AENV_NETWORK__PREFIX": settings.network.prefix,
            "AENV_NETWORK__NETWORK": str(settings.network.network),
            "AENV_NETWORK__MAX_SLOTS": str(settings.network.max_slots),
            "AENV_NETWORK__UID_BASE": str(settings.network.uid_base),
        }
    )
    log_path = home.path / "server.log"
    with log_path.open("w") as log_file:
        process = subprocess.Popen(
            # Should the demo be killed, its server is told to stop.
            ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "agentenv.main", "server", "--port", "0"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log_file,
            text=True,
            # Ctrl-C reaches the demo alone; it stops its server in order.
            start_new_session=True,
        )
    try:
        url = _wait_for_address(process, log_path)
        yield ScratchServer(url, environment["AENV_API_KEY"], home, process)
    finally:
        _stop(process)


def _wait_for_address(process: subprocess.Popen[str], log_path: Path) -> str:
    assert process.stdout is not None
    is_ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
    line = process.stdout.readline() if is_ready else ""
    if not line.startswith("listening on "):
        process.kill()
        process.wait()
        tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-10:])
        raise DemoServerFailed(f"the server did not start:\n{tail}")
    return line.removeprefix("listening on ").strip()


def _stop(process: subprocess.Popen[str]) -> None:
    with process:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
