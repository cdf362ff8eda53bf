"""Guests that do their worst: memory, disk, processes and descriptors run out, the firewall is flushed."""

from collections.abc import Callable

import pytest
from e2b import CommandExitException, NotEnoughSpaceException, PtySize, Sandbox

RESIDENT = "awk '/^VmRSS/ {print $2}' /proc/$(pgrep -o -x aenv-guest)/status"
IDLE_KIB_MAX = 8 << 10
STREAMS, PROCESSES = 1000, 300
# Most of it at once, and the rest block by block.
FILL = "fallocate -l $(($(stat -f -c '%a * %S' /) * 99 / 100)) /var/tmp/most; cat /dev/zero > /var/tmp/rest || true"
CLIENT = r"""
import json, socket, struct

def connect(method, message):
    payload = json.dumps(message).encode()
    body = struct.pack(">BI", 0, len(payload)) + payload
    stream = socket.create_connection(("127.0.0.1", 49983))
    head = f"POST /process.Process/{method} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n"
    head += "X-Access-Token: %(token)s\r\nContent-Type: application/connect+json\r\n"
    stream.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return stream

def read_all(stream):
    content = b""
    while piece := stream.recv(65536):
        content += piece
    stream.close()
    return content

def start(*words):
    return connect("Start", {"process": {"cmd": words[0], "args": words[1:]}, "stdin": False})

# One process with many listeners, all of which see its end.
waiter = start("/bin/sh", "-c", "while ! [ -e /tmp/go ]; do sleep 0.2; done; echo went")
pid = int(waiter.recv(65536).split(b'"pid":')[1].split(b"}")[0])
streams = [connect("Connect", {"process": {"pid": pid}}) for _ in range(%(streams)d)]
for stream in streams:
    assert b'"start"' in stream.recv(4096)
open("/tmp/go", "w").close()
ended = sum(b'"exitCode":0' in read_all(stream) for stream in streams)
finished = sum(b'"exitCode":0' in read_all(start("/bin/true")) for _ in range(%(processes)d))
print(f"{ended} streams, {finished} processes")
"""


def daemon_pid(sandbox: Sandbox) -> str:
    return sandbox.commands.run("pgrep -o -x aenv-guest").stdout


def test_the_daemon_is_the_last_to_die_of_hunger(sandbox: Sandbox) -> None:
    before = daemon_pid(sandbox)
    assert sandbox.commands.run(f"cat /proc/{before.strip()}/oom_score_adj /proc/1/oom_score_adj").stdout == (
        "-1000\n-1000\n"
    )
    hog = "exec python3 -c 'a = []\nwhile True: a.append(bytearray(8 << 20))'"
    with pytest.raises(CommandExitException) as end:
        sandbox.commands.run(hog, timeout=120)
    assert (end.value.exit_code, end.value.error) == (-1, "signal: killed")
    assert daemon_pid(sandbox) == before


def test_a_full_disk_is_an_error_of_the_upload_alone(sandbox: Sandbox) -> None:
    sandbox.commands.run("mkdir -p /mnt/small && mount -t tmpfs -o size=1M none /mnt/small", user="root")
    with pytest.raises(NotEnoughSpaceException):
        sandbox.files.write("/mnt/small/file", b"x" * (4 << 20), user="root")
    assert sandbox.commands.run("echo on").stdout == "on\n"
    sandbox.commands.run("umount /mnt/small", user="root")


def test_a_full_root_disk_is_an_error_until_there_is_room(create_sandbox: Callable[..., Sandbox]) -> None:
    full = create_sandbox()
    before = daemon_pid(full)
    full.commands.run(FILL, user="root", timeout=120)
    with pytest.raises(NotEnoughSpaceException):
        full.files.write("/home/user/file", b"x" * (4 << 20))
    # Processes, terminals and streams need no disk.
    assert full.commands.run("echo on").stdout == "on\n"
    terminal = full.pty.create(PtySize(rows=24, cols=80))
    assert full.pty.kill(terminal.pid)
    with pytest.raises(CommandExitException):
        full.commands.run("echo x > /home/user/other")
    full.commands.run("rm /var/tmp/most /var/tmp/rest", user="root")
    full.files.write("/home/user/file", b"x" * (4 << 20))
    assert daemon_pid(full) == before


def test_a_killed_shell_ends_its_stream_and_no_other(sandbox: Sandbox) -> None:
    witness = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    # By itself, by another command while its output floods, by the client while its output floods.
    with pytest.raises(CommandExitException) as end:
        sandbox.commands.run("echo before; kill -9 $$; echo after")
    assert (end.value.stdout, end.value.error) == ("before\n", "signal: killed")
    for kill in (
        lambda pid: sandbox.commands.run(f"kill -9 {pid}"),
        sandbox.commands.kill,
    ):
        flood = sandbox.commands.run("while :; do echo flood; done", background=True, retain_output=False)
        assert next(iter(flood))[0]
        kill(flood.pid)
        with pytest.raises(CommandExitException) as end:
            flood.wait()
        assert end.value.error == "signal: killed"
        assert flood.pid not in [process.pid for process in sandbox.commands.list()]
    sandbox.commands.send_stdin(witness.pid, "it\n")
    assert witness.wait().stdout == "got it\n"


def test_a_killed_shell_ends_its_terminal_though_its_jobs_live_on(sandbox: Sandbox) -> None:
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.send_stdin(terminal.pid, b"sleep 8642 & kill -9 $$\n")
    with pytest.raises(CommandExitException) as end:
        terminal.wait(on_pty=lambda _: None)
    assert end.value.error == "signal: killed"
    assert sandbox.commands.run("pkill -c -f 'sleep 864[2]'").stdout == "1\n"


def test_a_flushed_firewall_changes_nothing(sandbox: Sandbox) -> None:
    flush = "iptables -F 2>/dev/null || nft flush ruleset 2>/dev/null || true"
    sandbox.commands.run(flush, user="root")
    assert sandbox.commands.run("echo on").stdout == "on\n"


def test_a_fork_bomb_leaves_room_for_the_daemon(sandbox: Sandbox) -> None:
    limit = int(sandbox.commands.run("cat /sys/fs/cgroup/aenv/pids.max").stdout)
    assert limit < int(sandbox.commands.run("cat /proc/sys/kernel/threads-max").stdout)
    # As many sleepers as the limit lets live; the shell goes on when it cannot fork.
    sandbox.commands.run("echo 200 > /sys/fs/cgroup/aenv/pids.max", user="root")
    bomb = "for i in $(seq 400); do sleep 300 & done 2>/dev/null; wait"
    handle = sandbox.commands.run(bomb, background=True, user="root", timeout=300)
    try:
        assert sandbox.files.exists("/etc/passwd")
        assert handle.pid in [process.pid for process in sandbox.commands.list()]
    finally:
        sandbox.files.write("/sys/fs/cgroup/aenv/pids.max", str(limit), user="root")
        sandbox.commands.kill(handle.pid)
        sandbox.commands.run("pkill -9 -x sleep || true", user="root")
    assert sandbox.commands.run("echo on").stdout == "on\n"


def test_many_streams_and_processes_leave_a_small_daemon(sandbox: Sandbox) -> None:
    # A client in the guest: sockets without the weight of an SDK, and no server in between.
    script = CLIENT % {"token": sandbox._envd_access_token, "streams": STREAMS, "processes": PROCESSES}
    sandbox.files.write("/tmp/client.py", script)
    result = sandbox.commands.run("ulimit -n 4096; python3 /tmp/client.py", user="root", timeout=540)
    assert result.stdout.splitlines()[-1] == f"{STREAMS} streams, {PROCESSES} processes"
    sandbox.commands.run("sleep 3")
    assert int(sandbox.commands.run(RESIDENT).stdout) < IDLE_KIB_MAX
    leftovers = "ls -d /sys/fs/cgroup/aenv/*/ | wc -l"
    assert int(sandbox.commands.run(leftovers).stdout) < 100
