"""`pty` of the official SDK, in a real VM."""

import pytest
from e2b import CommandExitException, PtySize, Sandbox


def test_a_terminal_runs_a_shell_and_ends_with_it(sandbox: Sandbox) -> None:
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=30, cols=80), timeout=60, envs={"MARK": "inside"})
    sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $MARK-$TERM; exit 4\n")

    with pytest.raises(CommandExitException) as end:
        terminal.wait(on_pty=output.extend)

    assert end.value.exit_code == 4
    assert b"30 80" in output
    assert b"inside-xterm-256color" in output


def test_a_resize_reaches_the_program(sandbox: Sandbox) -> None:
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60)
    sandbox.pty.resize(terminal.pid, PtySize(rows=50, cols=132))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    terminal.wait(on_pty=output.extend)
    assert b"50 132" in output


def test_control_c_interrupts_the_foreground_job(sandbox: Sandbox) -> None:
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60)
    # The word is split, so that the terminal's echo of the line is not taken for the program's output.
    program = "trap 'echo cau''ght; exit' INT; echo be''gun; while :; do sleep 0.1; done"
    sandbox.pty.send_stdin(terminal.pid, f'bash -c "{program}"; exit\n'.encode())
    is_interrupted = False
    for _, _, data in terminal:
        output += data or b""
        if b"begun" in output and not is_interrupted:
            sandbox.pty.send_stdin(terminal.pid, b"\x03")
            is_interrupted = True
    assert b"caught" in output


def test_a_killed_terminal_says_so(sandbox: Sandbox) -> None:
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60)
    assert sandbox.pty.kill(terminal.pid)
    with pytest.raises(CommandExitException) as end:
        terminal.wait()
    assert end.value.error == "signal: killed"
    assert not sandbox.pty.kill(terminal.pid)
