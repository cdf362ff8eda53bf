"""`commands` of the official SDK, in a real VM."""

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    TimeoutException,
)


def test_output_streams_and_exit_code_are_kept_apart(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code, result.error) == ("out\n", "err\n", 0, None)


def test_an_exit_code_is_an_exception_with_everything(sandbox: Sandbox) -> None:
    with pytest.raises(CommandExitException) as failure:
        sandbox.commands.run("echo out; echo err >&2; exit 3")
    error = failure.value
    assert (error.exit_code, error.stdout, error.stderr, error.error) == (3, "out\n", "err\n", "exit status 3")


def test_the_guest_is_a_machine_of_its_own(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("hostname").stdout.strip() == sandbox.sandbox_id
    assert sandbox.commands.run("nproc").stdout.strip() == "2"
    assert sandbox.commands.run("cat /proc/1/comm").stdout.strip().startswith(("init", "aenv"))
    assert "/dev/vda / ext4" in sandbox.commands.run("cat /proc/mounts").stdout


def test_the_user_is_user_unless_another_is_named(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("whoami; echo $HOME; pwd").stdout == "user\n/home/user\n/home/user\n"
    assert sandbox.commands.run("whoami; echo $HOME", user="root").stdout == "root\n/root\n"
    assert sandbox.commands.run("sudo -n whoami").stdout == "root\n"
    with pytest.raises(AuthenticationException):
        sandbox.commands.run("true", user="nobody-of-that-name")


def test_directory_and_environment_are_honoured(sandbox: Sandbox) -> None:
    result = sandbox.commands.run('pwd; echo "$A"', cwd="/tmp", envs={"A": "two\nlines = ü"})
    assert result.stdout == "/tmp\ntwo\nlines = ü\n"
    with pytest.raises(InvalidArgumentException, match="does not exist"):
        sandbox.commands.run("true", cwd="/no/such/place")


def test_much_output_arrives_whole(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("seq 1 700000", timeout=120)
    assert result.stdout == "".join(f"{n}\n" for n in range(1, 700_001))


def test_standard_input_reaches_a_process_and_ends(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "hello ")
    sandbox.commands.send_stdin(handle.pid, "world\n")
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "hello world\nend\n"


def test_a_background_process_is_listed_connected_to_and_killed(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("while :; do echo tick; sleep 0.2; done", background=True)
    assert handle.pid in [process.pid for process in sandbox.commands.list()]

    lines: list[str] = []
    second = sandbox.commands.connect(handle.pid)
    for stdout, _, _ in second:
        lines.append(stdout or "")
        if len(lines) >= 2:
            break
    second.disconnect()

    assert sandbox.commands.kill(handle.pid)
    with pytest.raises(CommandExitException) as end:
        handle.wait()
    assert (end.value.exit_code, end.value.error) == (-1, "signal: killed")
    assert not sandbox.commands.kill(handle.pid)
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(999_999)


def test_a_command_that_is_too_slow_is_killed_with_its_children(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 7654 & sleep 7654", timeout=1)
    assert sandbox.commands.run("pgrep -fc 'sleep 765[4]' || true").stdout == "0\n"
