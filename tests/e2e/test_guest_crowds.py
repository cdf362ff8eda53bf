"""Ten thousand processes, and clients that take all connections: the daemon of a large guest answers and recovers."""

from collections.abc import Iterator

import pytest
from e2b import CommandExitException, Sandbox, TimeoutException

from agentenv.main.demo.scratch import ScratchServer
from support.image_maker import add_images, add_large_base
from support.server import access_to, real_home, real_server, settings_for_tests

SETTINGS = settings_for_tests(prefix="aenvcrowd", network="10.215.0.0/24", uid_base=410_000)
# A shell that does nothing is a tenth of a megabyte; with less memory the kernel allows fewer than ten thousand.
MEMORY_MIB = 3072
SHELLS, PROCESSES, CONNECTIONS = 100, 10_000, 9_000
# Each waits for somebody to write into the pipe. By many shells: each keeps a list of its own, which becomes slow.
CROWD = f"""
mkfifo /tmp/never
for i in $(seq {SHELLS}); do
  (for j in $(seq {PROCESSES // SHELLS}); do read x < /tmp/never & done; echo $i; wait) &
done
wait
"""
LIMIT_SECONDS = 200
FLOOD = f"""
import socket, sys, time
held = [socket.create_connection(("127.0.0.1", 49983)) for _ in range({CONNECTIONS})]
for connection in held[::2]:
    connection.send(b"GET /hea")
print("held", flush=True)
time.sleep(600)
"""
DAEMON = "pgrep -o -x aenv-guest"
RESIDENT = f"awk '/^VmRSS/ {{print $2}}' /proc/$({DAEMON})/status"


@pytest.fixture(scope="module")
def server(prepared: None) -> Iterator[ScratchServer]:
    with real_home("test-crowds") as home:
        add_images(home)
        add_large_base(home, "large", memory_mib=MEMORY_MIB)
        with real_server(home, SETTINGS) as started:
            yield started


@pytest.fixture(scope="module")
def large(server: ScratchServer) -> Iterator[Sandbox]:
    sandbox = Sandbox.create("large", timeout=3600, request_timeout=120, **access_to(server))
    yield sandbox
    sandbox.kill()


def test_ten_thousand_processes_live_and_die_with_their_command(large: Sandbox) -> None:
    before = large.commands.run(DAEMON).stdout
    crowd = large.commands.run(f"exec dash -c '{CROWD}'", background=True, timeout=LIMIT_SECONDS)
    output = (out or "" for out, _, _ in crowd)
    lines = 0
    while lines < SHELLS:
        lines += next(output).count("\n")
    assert int(large.commands.run("ls -d /proc/[0-9]* | wc -l", timeout=60).stdout) > PROCESSES
    assert crowd.pid in [process.pid for process in large.commands.list()]
    large.files.write("/tmp/file", "x")
    assert large.files.read("/tmp/file") == "x"
    # Its time limit ends the command, with all that it has started.
    with pytest.raises(TimeoutException):
        crowd.wait()
    # The kernel takes its time for so many.
    large.commands.run("while pgrep -x dash; do sleep 1; done >/dev/null", timeout=100)
    assert large.commands.run(DAEMON).stdout == before
    assert int(large.commands.run(RESIDENT).stdout) < 8 << 10


def test_a_flood_of_connections_locks_nobody_out(large: Sandbox) -> None:
    before = large.commands.run(DAEMON).stdout
    command = f"ulimit -n 20000; exec python3 -c '{FLOOD}'"
    flood = large.commands.run(command, background=True, user="root", timeout=0)
    assert next(iter(flood))[0] == "held\n"
    # Host, server and daemon: new requests, a stream that is under way, files.
    assert large.is_running()
    assert large.commands.run("echo on").stdout == "on\n"
    assert large.files.exists("/etc/passwd")
    assert large.commands.kill(flood.pid)
    with pytest.raises(CommandExitException, match="-1"):
        flood.wait()
    assert large.commands.run(DAEMON).stdout == before
    assert large.commands.run("echo on").stdout == "on\n"
