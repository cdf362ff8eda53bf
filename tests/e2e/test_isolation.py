"""What a guest can reach: the outside if it may, and never the host, another guest or a private range.

The "outside" is a namespace that the test makes; nothing leaves this machine.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from e2b import CommandExitException, Sandbox

OUTSIDE = "aenvtest-outside"
ADDRESS, GATEWAY = "198.51.100.2", "198.51.100.1"
HOST_PORT = 9753
SERVE = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port={port}, bind='{host}')"


def run(*words: str) -> None:
    subprocess.run(words, check=True)


@pytest.fixture(scope="module")
def outside() -> Iterator[str]:
    """A host on the far side of this machine, with a web server on port 80; yields its address."""
    subprocess.run(["ip", "netns", "del", OUTSIDE], check=False, stderr=subprocess.DEVNULL)
    run("ip", "netns", "add", OUTSIDE)
    run("ip", "link", "add", "aenvtestout", "type", "veth", "peer", "name", "eth0", "netns", OUTSIDE)
    run("ip", "addr", "add", f"{GATEWAY}/30", "dev", "aenvtestout")
    run("ip", "link", "set", "aenvtestout", "up")
    for words in (
        f"addr add {ADDRESS}/30 dev eth0",
        "link set eth0 up",
        "link set lo up",
        f"route add default via {GATEWAY}",
    ):
        run("ip", "-n", OUTSIDE, *words.split())
    with serving("ip", "netns", "exec", OUTSIDE, host=ADDRESS, port=80):
        yield ADDRESS
    run("ip", "netns", "del", OUTSIDE)


@contextmanager
def serving(*prefix: str, host: str, port: int) -> Iterator[None]:
    """Run a web server, reachable from this host at `host`, and wait until it serves."""
    command = [*prefix, sys.executable, "-c", SERVE.format(port=port, host=host)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/usr/share/doc"
    ) as process:
        try:
            wait_until_open("127.0.0.1" if host == "0.0.0.0" else host, port)
            yield
        finally:
            process.kill()


def wait_until_open(host: str, port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="module")
def host_server() -> Iterator[int]:
    """A web server on every address of this host; yields its port."""
    with serving(host="0.0.0.0", port=HOST_PORT):
        yield HOST_PORT


def curl(sandbox: Sandbox, url: str) -> int:
    """Return curl's exit code in the guest."""
    try:
        return sandbox.commands.run(f"curl -s -o /dev/null -m 20 {url}", timeout=60).exit_code
    except CommandExitException as failure:
        return failure.exit_code


TIMED_OUT = 28


def test_a_guest_reaches_the_outside(sandbox: Sandbox, outside: str) -> None:
    assert curl(sandbox, f"http://{outside}/") == 0


def test_a_guest_without_internet_reaches_nothing_and_is_told_at_once(
    create_sandbox: Callable[..., Sandbox], sandbox: Sandbox, outside: str
) -> None:
    assert curl(sandbox, f"http://{outside}/") == 0
    closed = create_sandbox(allow_internet_access=False)
    assert curl(closed, f"http://{outside}/") not in {0, TIMED_OUT}
    assert closed.commands.run("echo still here").stdout == "still here\n"


@pytest.mark.parametrize(
    "address", [GATEWAY, "10.205.0.1", "169.254.0.22", "169.254.169.254", "10.0.0.1", "192.168.0.1"]
)
def test_a_guest_never_reaches_the_host_or_a_private_range(
    sandbox: Sandbox, outside: str, host_server: int, address: str
) -> None:
    assert curl(sandbox, f"http://{address}:{host_server}/") != 0


def test_a_guest_never_reaches_another_guest(sandbox: Sandbox, create_sandbox: Callable[..., Sandbox]) -> None:
    other = create_sandbox()
    other.commands.run("python3 -m http.server 8080", background=True, timeout=0)
    assert other.commands.run("until curl -s -o /dev/null http://127.0.0.1:8080/; do sleep 0.2; done").exit_code == 0
    # Every slot's address of this server, the other's among them.
    reached = sandbox.commands.run(
        "for n in $(seq 2 4 62); do curl -s -o /dev/null -m 2 http://10.205.0.$n:8080/ && echo $n; done; true",
        timeout=120,
    )
    assert reached.stdout == ""


def test_a_name_is_asked_of_the_gateway(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("cat /etc/resolv.conf").stdout.strip() == "nameserver 169.254.0.22"


def test_two_guests_have_random_numbers_of_their_own(sandbox: Sandbox, create_sandbox: Callable[..., Sandbox]) -> None:
    other = create_sandbox()
    read = "head -c 32 /dev/urandom | base64"
    assert sandbox.commands.run(read).stdout != other.commands.run(read).stdout
