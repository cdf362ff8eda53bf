"""A real server on real virtual machines for tests: its own home, port, network and key."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import TypedDict

from agentenv.guest import provision
from agentenv.main.demo.scratch import ScratchServer, scratch_home, scratch_server
from agentenv.main.doctor.leaks import find_leaks
from agentenv.main.home import Home
from agentenv.main.settings import Settings


class Access(TypedDict):
    """What the SDK must be told to reach a server of ours."""

    api_url: str
    sandbox_url: str
    api_key: str


def access_to(server: ScratchServer) -> Access:
    """Return what the SDK must be told to reach `server`."""
    return {"api_url": server.url, "sandbox_url": server.url, "api_key": server.key}


NETWORK = {
    "prefix": "aenvtest",
    "network": IPv4Network("10.205.0.0/24"),
    "max_slots": 16,
    "ready_slots_low": 1,
    "ready_slots_high": 2,
    "uid_base": 340_000,
}


def prepared_home() -> Path:
    """Return the home whose images and kernels tests borrow: where `aenv setup` put them."""
    return Path(os.environ.get("AENV_TEST_HOME") or Settings().home)


def prepared_daemon() -> Path:
    """Return the static guest daemon that is in the initramfs of the prepared home."""
    manifest = provision.read_boot_manifest(prepared_home())
    assert manifest is not None, "nothing is prepared; run `make setup`"
    return prepared_home() / manifest.daemon


def settings_for_tests(**network: object) -> Settings:
    """Return the settings of a test's server."""
    plain = Settings()
    return plain.model_copy(update={"network": plain.network.model_copy(update=NETWORK | network)})


@contextmanager
def real_home(name: str) -> Iterator[Home]:
    """Yield a home of its own below the prepared one."""
    with scratch_home(prepared_home(), name) as home:
        yield home


@contextmanager
def real_server(
    home: Home, settings: Settings, environment: Mapping[str, str] | None = None
) -> Iterator[ScratchServer]:
    """Run a server, and prove at its end that it left nothing behind."""
    with scratch_server(home, settings, environment) as server:
        yield server
    assert leaks_of(home, settings) == [], server.log.read_text()[-3000:]


def leaks_of(home: Home, settings: Settings) -> list[str]:
    """Return what a server of this home and network has on this host."""
    return asyncio.run(find_leaks(home.path, settings.network))
