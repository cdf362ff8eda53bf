"""Where the guest-facing tests run: against the daemon alone on this host, and against a server with a real machine."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from typing import Any

import pytest

from contract import alone
from support.server import access_to, prepared_home, real_home, real_server, settings_for_tests

ALONE, MACHINE = "alone", "machine"
DOMAIN = "sandboxes.test"
_MARKS = {ALONE: pytest.mark.host, MACHINE: pytest.mark.vm}
GLOBALS = {"GLOBAL": "from the sandbox"}
# Set in sessions that another one has started: the place is there already.
_HANDOVER = "AENV_CONTRACT_PLACE"
_NETWORK: Mapping[str, object] = {
    "prefix": "aenvcon",
    "network": IPv4Network("10.210.0.0/24"),
    "uid_base": 390_000,
}


@dataclass(frozen=True)
class Place:
    """A sandbox to test, and what a client must be told to reach it. `namespace` is empty for a machine."""

    name: str
    options: dict[str, Any]
    sandbox_id: str = "debug_sandbox_id"
    namespace: str = ""

    @property
    def url(self) -> str:
        """The base URL of the sandbox's ports."""
        return str(self.options["sandbox_url"])

    def handed_over(self) -> dict[str, str]:
        """Return the environment with which a child session uses this very place."""
        return {_HANDOVER: json.dumps(asdict(self))}


def inherited() -> Place | None:
    """Return the place that the session which started this one has made, if any."""
    document = os.environ.get(_HANDOVER)
    return None if document is None else Place(**json.loads(document))


def parameters() -> list[Any]:
    """Return the names of the places that this session tests, as pytest wants them."""
    given = inherited()
    names = [ALONE, MACHINE] if given is None else [given.name]
    return [pytest.param(name, marks=_MARKS[name]) for name in names]


def prepare_machine() -> None:
    """Prepare this host as a user would; nothing happens when it is prepared."""
    command = [sys.executable, "-m", "agentenv.main", "setup"]
    subprocess.run(command, check=True, env=os.environ | {"AENV_HOME": str(prepared_home())})


@contextlib.contextmanager
def lone_place() -> Iterator[Place]:
    """Run the daemon alone. Debug mode is how the official clients talk to a daemon without a control plane."""
    with alone.lone_daemon(prepared_home()) as (url, namespace):
        assert alone.request("POST", "/init", {"envVars": GLOBALS}) == 204
        yield Place(ALONE, {"debug": True, "sandbox_url": url}, namespace=namespace)


@contextlib.contextmanager
def machine_place() -> Iterator[Place]:
    """Run a server and create a sandbox on it, which all tests share."""
    from e2b import Sandbox

    settings = settings_for_tests(**_NETWORK)
    environment = {"AENV_API__DOMAINS": f'["{DOMAIN}"]'}
    with real_home("test-contract") as home, real_server(home, settings, environment) as server:
        access: dict[str, Any] = dict(access_to(server))
        shared = Sandbox.create(timeout=3600, request_timeout=120, envs=GLOBALS, metadata={"is": "shared"}, **access)
        try:
            yield Place(MACHINE, access, sandbox_id=shared.sandbox_id)
        finally:
            shared.kill()
