"""Group H: `pty` of the Python clients."""

from typing import Any

import pytest
from e2b import CommandExitException, PtySize, SandboxException

SIZE = PtySize(rows=24, cols=80)
line = pytest.mark.line


def read_until(terminal: Any, mark: bytes) -> bytes:
    """Read the terminal until `mark` was shown, and return all that was."""
    shown = b""
    for _, _, data in terminal:
        shown += data or b""
        if mark in shown:
            return shown
    raise AssertionError(f"{mark!r} was never shown, but {shown!r}")


@line("H01", "H05")
def test_a_shell_in_a_terminal_answers_and_ends(sandbox: Any) -> None:
    output = bytearray()
    terminal = sandbox.pty.create(SIZE)
    sandbox.pty.send_stdin(terminal.pid, b"echo $((100+23)) $TERM\nexit\n")
    assert terminal.wait(on_pty=output.extend).exit_code == 0
    assert b"123 xterm-256color" in output


@line("H02")
def test_the_size_is_seen_inside_and_can_change(sandbox: Any) -> None:
    terminal = sandbox.pty.create(SIZE)
    sandbox.pty.send_stdin(terminal.pid, b"stty size\n")
    read_until(terminal, b"24 80\r\n")
    sandbox.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    output = bytearray()
    terminal.wait(on_pty=output.extend)
    assert b"30 100\r\n" in output


@line("H03")
def test_a_killed_terminal_is_told_from_one_that_never_was(sandbox: Any) -> None:
    terminal = sandbox.pty.create(SIZE)
    assert sandbox.pty.kill(terminal.pid)
    with pytest.raises(CommandExitException) as raised:
        terminal.wait()
    assert raised.value.error == "signal: killed"
    assert not sandbox.pty.kill(terminal.pid)


@line("H04")
def test_a_terminal_is_found_again_as_it_was_left(sandbox: Any) -> None:
    terminal = sandbox.pty.create(SIZE)
    sandbox.pty.send_stdin(terminal.pid, b"KEPT=still; echo rea''dy\n")
    read_until(terminal, b"ready")
    terminal.disconnect()

    again = sandbox.pty.connect(terminal.pid)
    sandbox.pty.send_stdin(terminal.pid, b"echo $KEPT-here; exit\n")
    output = bytearray()
    again.wait(on_pty=output.extend)
    assert b"still-here" in output


@line("H06")
def test_control_c_reaches_the_foreground_job(sandbox: Any) -> None:
    terminal = sandbox.pty.create(SIZE)
    sandbox.pty.send_stdin(terminal.pid, b"sh -c 'echo be\"\"gun; exec sleep 1000'\n")
    read_until(terminal, b"begun")
    sandbox.pty.send_stdin(terminal.pid, b"\x03")
    sandbox.pty.send_stdin(terminal.pid, b"echo code=$?\n")
    read_until(terminal, b"code=130")
    sandbox.pty.kill(terminal.pid)


@line("H07")
def test_the_input_of_a_terminal_cannot_be_closed(sandbox: Any) -> None:
    terminal = sandbox.pty.create(SIZE)
    with pytest.raises(SandboxException):
        sandbox.commands.close_stdin(terminal.pid)
    assert sandbox.pty.kill(terminal.pid)


@line("H08")
def test_user_directory_and_environment_are_honoured(sandbox: Any) -> None:
    terminal = sandbox.pty.create(SIZE, user="root", cwd="/tmp", envs={"MARK": "inside"})
    sandbox.pty.send_stdin(terminal.pid, b"echo $(whoami):$(pwd):$MARK; exit\n")
    output = bytearray()
    terminal.wait(on_pty=output.extend)
    assert b"root:/tmp:inside" in output


@line("H10")
def test_raw_bytes_pass_a_terminal_unchanged(sandbox: Any) -> None:
    terminal = sandbox.pty.create(SIZE)
    sandbox.pty.send_stdin(
        terminal.pid, rb"stty raw -echo; printf 'beg''in\033[31m\377\001\r\033]0;x\007e''nd'" + b"\n"
    )
    shown = read_until(terminal, b"end")
    sandbox.pty.kill(terminal.pid)
    assert b"begin\x1b[31m\xff\x01\r\x1b]0;x\x07end" in shown
