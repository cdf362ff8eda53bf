"""Group G: `commands` of the Python clients."""

import base64
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    TimeoutException,
)

from contract.places import Place

NOBODY = 4_000_000
EAT_MEMORY = "eaten = []\nwhile True: eaten.append(bytearray(1 << 20))"
line = pytest.mark.line


@line("G01")
def test_a_command_returns_its_output_and_code(sandbox: Any) -> None:
    result = sandbox.commands.run("echo hi")
    assert (result.stdout, result.stderr, result.exit_code, result.error) == ("hi\n", "", 0, None)


@line("G02")
def test_an_exit_code_raises_with_everything_that_was_written(sandbox: Any) -> None:
    with pytest.raises(CommandExitException) as raised:
        sandbox.commands.run("echo out; echo err >&2; exit 3")
    end = raised.value
    assert (end.exit_code, end.stdout, end.stderr, end.error) == (3, "out\n", "err\n", "exit status 3")


@line("G03")
def test_streams_are_apart_and_each_is_in_order(sandbox: Any) -> None:
    result = sandbox.commands.run("for n in $(seq 200); do echo o$n; echo e$n >&2; done")
    assert result.stdout == "".join(f"o{n}\n" for n in range(1, 201))
    assert result.stderr == "".join(f"e{n}\n" for n in range(1, 201))


@line("G04")
def test_output_that_ends_inside_a_character_ends_in_a_replacement(sandbox: Any) -> None:
    result = sandbox.commands.run(r"head -c 8191 /dev/zero | tr '\0' a; printf '\xe2'")
    assert result.stdout == "a" * 8191 + "�"


@line("G05")
@pytest.mark.parametrize("text", ["two\nlines", "\"double\" 'single'", "!@#$%^&*()_+", "ü ☃ 🚀", "back\\slash \t tab"])
def test_text_is_taken_as_it_is(sandbox: Any, text: str) -> None:
    assert sandbox.commands.run(f"cat <<'END'\n{text}\nEND").stdout == f"{text}\n"


@line("G06")
@pytest.mark.once
def test_ten_mebibytes_arrive_whole_and_in_order(sandbox: Any) -> None:
    lines = 1_331_000  # with their ends: 10.0 MiB
    result = sandbox.commands.run(f"seq -f %.0f 1 {lines}", timeout=240)
    assert len(result.stdout) > 9_500_000
    assert result.stdout == "".join(f"{n}\n" for n in range(1, lines + 1))


@line("G07")
def test_a_command_that_takes_too_long_dies_with_all_it_started(sandbox: Any) -> None:
    assert sandbox.commands.run("sleep 0", timeout=10).exit_code == 0
    began = time.monotonic()
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 7654 & setsid sleep 7654 & sleep 7654", timeout=2)
    assert 1.5 < time.monotonic() - began < 8
    assert sandbox.commands.run("pgrep -fc 'sleep 765[4]' || true").stdout == "0\n"


@line("G08")
def test_no_timeout_means_no_limit(sandbox: Any) -> None:
    assert sandbox.commands.run("sleep 3; echo done", timeout=0).stdout == "done\n"


@line("G08")
@pytest.mark.once
def test_two_minutes_of_silence_end_no_stream(tokened: Any) -> None:
    assert tokened.commands.run("sleep 130; echo done", timeout=0).stdout == "done\n"


@line("G09")
def test_the_user_decides_identity_and_home(sandbox: Any) -> None:
    show = "id -un; echo $HOME $USER $LOGNAME"
    assert sandbox.commands.run(show).stdout == "user\n/home/user user user\n"
    assert sandbox.commands.run(show, user="root").stdout == "root\n/root root root\n"
    with pytest.raises(AuthenticationException):
        sandbox.commands.run("true", user="nobody-of-that-name")


@line("G10")
def test_the_working_directory_is_honoured(sandbox: Any, directory: str) -> None:
    assert sandbox.commands.run("pwd").stdout == "/home/user\n"
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert sandbox.commands.run("pwd", cwd=directory.removeprefix("/home/user/")).stdout == f"{directory}\n"
    with pytest.raises(InvalidArgumentException, match="does not exist"):
        sandbox.commands.run("true", cwd="/no/such/place")


@line("G11")
def test_a_background_command_gives_its_pid_at_once(sandbox: Any) -> None:
    began = time.monotonic()
    handle = sandbox.commands.run("echo $$; sleep 600", background=True)
    assert time.monotonic() - began < 5
    stdout, _, _ = next(iter(handle))
    assert stdout == f"{handle.pid}\n"
    handle.kill()


@line("G12")
def test_the_end_can_be_waited_for_twice(sandbox: Any) -> None:
    handle = sandbox.commands.run("echo once", background=True)
    assert handle.wait().stdout == "once\n"
    assert handle.wait().stdout == "once\n"


@line("G13")
def test_running_commands_are_listed_as_they_were_started(sandbox: Any) -> None:
    handle = sandbox.commands.run("sleep 600", background=True, envs={"A": "b"}, cwd="/tmp")
    (found,) = [process for process in sandbox.commands.list() if process.pid == handle.pid]
    handle.kill()
    assert (found.cmd, found.args) == ("/bin/bash", ["-l", "-c", "sleep 600"])
    assert (found.envs, found.cwd, found.tag) == ({"A": "b"}, "/tmp", None)


@line("G14")
def test_a_kill_is_seen_by_who_waits(sandbox: Any) -> None:
    handle = sandbox.commands.run("sleep 600", background=True)
    assert sandbox.commands.kill(handle.pid)
    with pytest.raises(CommandExitException) as raised:
        handle.wait()
    assert (raised.value.exit_code, raised.value.error) == (-1, "signal: killed")
    assert not sandbox.commands.kill(NOBODY)


@line("G15", "G16")
def test_two_connections_see_later_output_and_the_end(sandbox: Any) -> None:
    first = sandbox.commands.run("read go; echo said $go", background=True, stdin=True)
    second, third = sandbox.commands.connect(first.pid), sandbox.commands.connect(first.pid)
    assert second.pid == third.pid == first.pid
    sandbox.commands.send_stdin(first.pid, "now\n")
    assert [handle.wait().stdout for handle in (first, second, third)] == ["said now\n"] * 3
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(NOBODY)


@line("G17")
def test_a_connection_just_after_the_end_learns_the_code(sandbox: Any) -> None:
    handle = sandbox.commands.run("exit 7", background=True)
    with pytest.raises(CommandExitException):
        handle.wait()
    with pytest.raises(CommandExitException) as raised:
        sandbox.commands.connect(handle.pid).wait()
    assert raised.value.exit_code == 7


@line("G18", "G19")
def test_input_reaches_the_command_until_it_is_closed(sandbox: Any) -> None:
    handle = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "text ☃ ")
    sandbox.commands.send_stdin(handle.pid, b"bytes\n")
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "text ☃ bytes\nend\n"


@line("G20")
def test_input_after_the_end_is_refused(sandbox: Any) -> None:
    handle = sandbox.commands.run("true", background=True, stdin=True)
    handle.wait()
    with pytest.raises(NotFoundException):
        sandbox.commands.send_stdin(handle.pid, "late")


@line("G21")
def test_without_input_a_reader_ends_at_once(sandbox: Any) -> None:
    assert sandbox.commands.run("cat; echo end", stdin=False, timeout=20).stdout == "end\n"


@line("G22")
@pytest.mark.newest
def test_streamed_input_keeps_its_order(sandbox: Any) -> None:
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.stream_input(handle.pid, [f"{n}\n" for n in range(500)])
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "".join(f"{n}\n" for n in range(500))


@line("G23")
def test_a_disconnected_command_runs_on_and_is_found_again(sandbox: Any) -> None:
    handle = sandbox.commands.run("read word; echo got $word", background=True, stdin=True)
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    sandbox.commands.send_stdin(handle.pid, "it\n")
    assert again.wait().stdout == "got it\n"


@line("G24")
@pytest.mark.vm
@pytest.mark.once
def test_a_command_learns_that_its_sandbox_was_killed(create_sandbox: Any) -> None:
    sandbox = create_sandbox()
    handle = sandbox.commands.run("echo up; sleep 600", background=True, timeout=600)
    assert next(iter(handle))[0] == "up\n"
    killer = threading.Thread(target=sandbox.kill)
    killer.start()
    with pytest.raises(TimeoutException, match="killed or reached its end of life"):
        handle.wait()
    killer.join()


@line("G25", "B09")
def test_the_environment_holds_what_was_asked_for_and_nothing_of_the_daemon(sandbox: Any) -> None:
    shown = sandbox.commands.run("tr '\\0' '\\n' </proc/$$/environ", envs={"MINE": "1"}).stdout
    names = {pair.partition("=")[0] for pair in shown.splitlines()}
    of_every_sandbox = {"E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID", "E2B_EVENTS_ADDRESS", "LANG"}
    assert {"PATH", "HOME", "USER", "LOGNAME", "GLOBAL", "MINE"} <= names
    assert names <= {"PATH", "HOME", "USER", "LOGNAME", "GLOBAL", "MINE"} | of_every_sandbox


@line("B09")
def test_a_commands_environment_beats_the_sandboxs(sandbox: Any) -> None:
    assert sandbox.commands.run("echo $GLOBAL").stdout == "from the sandbox\n"
    assert sandbox.commands.run("echo $GLOBAL", envs={"GLOBAL": "mine"}).stdout == "mine\n"


@line("G26")
@pytest.mark.host
@pytest.mark.newest
def test_a_hundred_commands_at_once_all_answer(lone: Place, sandboxes: Any) -> None:
    # In an emulated machine this takes half a minute, so there only the JavaScript client does it.
    sandbox = sandboxes.connect(lone.sandbox_id, **lone.options)
    handles = [sandbox.commands.run(f"sleep 0.2; echo {n}", background=True, timeout=120) for n in range(100)]
    assert [handle.wait().stdout for handle in handles] == [f"{n}\n" for n in range(100)]


@line("G27")
def test_the_end_waits_for_a_child_that_holds_the_output(sandbox: Any) -> None:
    result = sandbox.commands.run("(sleep 1; echo child) & echo parent")
    assert result.stdout == "parent\nchild\n"


@line("G28")
def test_a_command_survives_its_client(sandbox: Any, place: Any, sandboxes: Any) -> None:
    handle = sandbox.commands.run("sleep 600", background=True)
    handle.disconnect()
    second = sandboxes.connect(place.sandbox_id, **place.options)
    assert handle.pid in [process.pid for process in second.commands.list()]
    assert second.commands.kill(handle.pid)


@line("G29")
@pytest.mark.newest
def test_output_that_is_not_kept_still_brings_a_code(sandbox: Any) -> None:
    heard: list[str] = []
    result = sandbox.commands.run("echo hi", retain_output=False, on_stdout=heard.append)
    assert (result.stdout, result.exit_code, heard) == (None, 0, ["hi\n"])


@line("G31")
def test_any_byte_and_a_long_line_pass_unchanged(sandbox: Any) -> None:
    assert sandbox.commands.run(r"printf 'a\0b'").stdout == "a\0b"
    long = sandbox.commands.run("head -c 1048576 /dev/zero | tr '\\0' x; echo; echo end", timeout=120)
    assert long.stdout == "x" * 1_048_576 + "\nend\n"


@line("G32")
@pytest.mark.parametrize("value", ["two\nlines", "a=b=c", "ü☃🚀", "", "'\"$HOME`x`"])
def test_environment_values_survive(sandbox: Any, value: str) -> None:
    shown = sandbox.commands.run('printf %s "$VALUE" | base64 -w0', envs={"VALUE": value}).stdout
    assert base64.b64decode(shown).decode() == value


@line("P05")
def test_output_that_nobody_reads_holds_nobody_up(sandbox: Any) -> None:
    unread = sandbox.commands.run("yes", background=True, timeout=60)
    assert sandbox.commands.run("echo quick", timeout=20).stdout == "quick\n"
    assert sandbox.commands.kill(unread.pid)
    unread.disconnect()


@line("G18")
def test_input_to_a_command_without_any_is_an_error(sandbox: Any) -> None:
    handle = sandbox.commands.run("sleep 600", background=True, stdin=False)
    with pytest.raises(SandboxException):
        sandbox.commands.send_stdin(handle.pid, "no")
    assert sandbox.commands.kill(handle.pid)


@line("G30")
@pytest.mark.vm
@pytest.mark.once
def test_a_command_that_takes_all_memory_is_killed_alone(tokened: Any) -> None:
    with pytest.raises(CommandExitException) as raised:
        tokened.commands.run(f"exec python3 -c '{EAT_MEMORY}'", timeout=120)
    assert raised.value.error == "signal: killed"
    assert tokened.commands.run("echo alive").stdout == "alive\n"


@line("P06")
@pytest.mark.vm
@pytest.mark.once
def test_a_jump_of_the_clock_ends_no_command(tokened: Any) -> None:
    handle = tokened.commands.run("sleep 2; echo whole", background=True, timeout=60)
    tokened.commands.run("date -s '+1 hour'", user="root")
    try:
        assert handle.wait().stdout == "whole\n"
    finally:
        tokened.commands.run("date -s '-1 hour'", user="root")


@pytest.fixture(scope="module")
def crashed(machine: Place) -> Iterator[tuple[Sandbox, int]]:
    """A sandbox whose daemon was killed, and the pid of a command that it had started before."""
    sandbox = Sandbox.create(timeout=300, request_timeout=120, **machine.options)
    try:
        pid = sandbox.commands.run("sleep 600", background=True).pid
        daemon = sandbox.commands.run("pgrep -f 'daemon --' | head -1").stdout.strip()
        with pytest.raises((SandboxException, TimeoutException)):
            sandbox.commands.run(f"kill -9 {daemon}; sleep 60", user="root", timeout=30)
        yield sandbox, pid
    finally:
        sandbox.kill()


@line("P08")
@pytest.mark.vm
@pytest.mark.once
def test_a_killed_daemon_is_back_at_once(crashed: tuple[Sandbox, int]) -> None:
    sandbox, _ = crashed
    deadline = time.monotonic() + 10
    while not answers(sandbox):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def answers(sandbox: Sandbox) -> bool:
    try:
        return sandbox.commands.run("echo back").stdout == "back\n"
    except SandboxException:
        return False


@pytest.mark.vm
@pytest.mark.once
def test_a_killed_daemon_knows_what_runs(crashed: tuple[Sandbox, int]) -> None:
    sandbox, pid = crashed
    assert pid in [process.pid for process in sandbox.commands.list()]
    assert sandbox.commands.kill(pid)
