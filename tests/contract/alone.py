"""The guest daemon alone on this host, in namespaces of its own. Owns their making and their end."""

import contextlib
import http.client
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

from support.base_disk import write_base_disk
from support.guest_daemon import find_daemon

PORT = 49983
_LAUNCHER = Path(__file__).with_name("alone.sh")
# Reserved for benchmarks of networks, so no real host has these; two sessions at once choose different ones.
_RANGE = IPv4Network("198.18.0.0/15")
_CABLE = IPv4Network((int(_RANGE.network_address) + os.getpid() * 4 % _RANGE.num_addresses, 30))
_HOST, _GUEST = (str(address) for address in _CABLE.hosts())
_PATIENCE_SECONDS = 20


@contextlib.contextmanager
def lone_daemon(home: Path) -> Iterator[tuple[str, str]]:
    """Run the daemon over the base image of `home`; yield its URL and the name of its network namespace."""
    with contextlib.ExitStack() as stack:
        namespace = stack.enter_context(_network(f"aenvcon{os.getpid()}"))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="aenv-contract-"))
        inside = ("ip", "netns", "exec", namespace, "unshare", "--mount", "--pid", "--fork", "--kill-child")
        disk = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aenv-contract-"))) / "disk"
        write_base_disk(home, disk)
        process = stack.enter_context(subprocess.Popen([*inside, "sh", _LAUNCHER, disk, find_daemon(), directory]))
        stack.callback(process.kill)
        url = f"http://{_GUEST}:{PORT}"
        _wait_until_healthy(process)
        yield url, namespace


@contextlib.contextmanager
def _network(name: str) -> Iterator[str]:
    """Make a namespace with one cable to this host, and take both away again."""
    _ip("netns", "add", name)
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("addr", "add", f"{_HOST}/{_CABLE.prefixlen}", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-n", name, "addr", "add", f"{_GUEST}/{_CABLE.prefixlen}", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        yield name
    finally:
        _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _wait_until_healthy(process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            assert request("GET", "/health") == 204
        except OSError:
            assert process.poll() is None, "the daemon's namespaces could not be made"
            assert time.monotonic() < deadline, "the daemon does not answer"
            time.sleep(0.02)
        else:
            return


def request(method: str, path: str, document: object = None) -> int:
    """Send one request to the daemon and return the status of its answer."""
    connection = http.client.HTTPConnection(_GUEST, PORT, timeout=5)
    with contextlib.closing(connection):
        body = None if document is None else json.dumps(document)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
