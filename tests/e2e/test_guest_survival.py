"""The daemon of a real guest is killed again and again: processes, streams, ends and settings are still there."""

from collections.abc import Iterator

import httpx
import pytest
from e2b import CommandExitException, CommandHandle, PtySize, Sandbox, SandboxException

from support.server import Access

# Waits until its start was reported, kills the daemon, and writes down when the next one answered: this command's own
# stream dies as well. The door stays open meanwhile, so one request is enough, unless the dying daemon takes it.
KILL = r"""
sleep 0.5
begin=$EPOCHREALTIME
kill -9 "$(pgrep -o -x aenv-guest)"
until [[ $answer == *204* ]]; do
  exec 3<>/dev/tcp/127.0.0.1/49983
  printf 'GET /health HTTP/1.1\r\nHost: guest\r\n\r\n' >&3
  read -r answer <&3
done
echo $(((${EPOCHREALTIME/./} - ${begin/./}) / 1000)) > /run/back_after_ms.new
mv /run/back_after_ms.new /run/back_after_ms
"""


@pytest.fixture(scope="module")
def victim(access: Access) -> Iterator[Sandbox]:
    """A sandbox whose daemon may die."""
    sandbox = Sandbox.create(timeout=3600, request_timeout=120, **access)
    yield sandbox
    sandbox.kill()


def kill_daemon(sandbox: Sandbox) -> int:
    """Kill the daemon with -9, and return after how many milliseconds another one answered."""
    sandbox.files.remove("/run/back_after_ms")
    killer = sandbox.commands.run(KILL, user="root", background=True)
    killer.disconnect()
    # The killer is one of the processes that survive.
    script = "until [ -e /run/back_after_ms ]; do sleep 0.05; done; cat /run/back_after_ms"
    for _ in range(100):
        try:
            return int(sandbox.commands.run(script, timeout=30).stdout)
        except (httpx.TransportError, SandboxException):
            continue
    raise AssertionError("the daemon did not come back")


def reconnect(sandbox: Sandbox, handle: CommandHandle) -> CommandHandle:
    assert handle.pid in [process.pid for process in sandbox.commands.list()]
    return sandbox.commands.connect(handle.pid)


def test_the_daemon_is_back_within_a_second(victim: Sandbox) -> None:
    assert kill_daemon(victim) < 1000


def test_a_process_keeps_its_input_its_output_and_its_exit_code(victim: Sandbox) -> None:
    script = "while read line; do echo out $line; echo err $line >&2; done; exit 7"
    before = victim.commands.run(script, background=True, stdin=True)
    victim.commands.send_stdin(before.pid, "one\n")
    kill_daemon(victim)
    handle = reconnect(victim, before)
    victim.commands.send_stdin(handle.pid, "two\n")
    victim.commands.close_stdin(handle.pid)
    with pytest.raises(CommandExitException) as end:
        handle.wait()
    assert (end.value.stdout[-8:], end.value.stderr[-8:], end.value.exit_code) == ("out two\n", "err two\n", 7)


def test_a_process_is_signalled_and_its_end_is_known(victim: Sandbox) -> None:
    before = victim.commands.run("exec sleep 5000", background=True)
    kill_daemon(victim)
    handle = reconnect(victim, before)
    assert victim.commands.kill(handle.pid)
    with pytest.raises(CommandExitException) as end:
        handle.wait()
    assert (end.value.exit_code, end.value.error) == (-1, "signal: killed")
    assert handle.pid not in [process.pid for process in victim.commands.list()]


def test_a_terminal_goes_on(victim: Sandbox) -> None:
    before = victim.pty.create(PtySize(rows=24, cols=80))
    victim.pty.send_stdin(before.pid, b"export KEPT=yes\n")
    kill_daemon(victim)
    handle = victim.pty.connect(before.pid)
    victim.pty.resize(handle.pid, PtySize(rows=30, cols=100))
    victim.pty.send_stdin(handle.pid, b"stty size; echo kept=$KEPT; exit 5\n")
    collected: list[bytes] = []
    with pytest.raises(CommandExitException) as end:
        handle.wait(on_pty=collected.append)
    seen = b"".join(collected)
    assert b"30 100" in seen
    assert b"kept=yes" in seen
    assert end.value.exit_code == 5


def test_the_token_still_guards_the_daemon(victim: Sandbox) -> None:
    kill_daemon(victim)
    status = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:49983/envs"
    assert victim.commands.run(status).stdout == "401"
    assert victim.commands.run("echo $E2B_SANDBOX_ID").stdout.strip() == victim.sandbox_id
