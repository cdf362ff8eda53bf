"""Group O: the command line client, as far as it touches the guest and what is built of the control plane."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import uuid
from collections.abc import Callable, Iterator

import pytest
from e2b import Sandbox

from contract import node
from contract.places import Place

pytestmark = pytest.mark.vm
line = pytest.mark.line
PROGRAM = node.DIRECTORY / "node_modules/@e2b/cli/dist/index.js"
Cli = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="module")
def environment(machine: Place, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the program is told."""
    node.install()
    return {
        "PATH": node.PATH,
        "HOME": str(tmp_path_factory.mktemp("home")),
        "TERM": "xterm",
        "NO_UPDATE_NOTIFIER": "1",
        "NO_COLOR": "1",
        "E2B_API_KEY": machine.options["api_key"],
        "E2B_API_URL": machine.options["api_url"],
        "E2B_SANDBOX_URL": machine.url,
    }


@pytest.fixture(scope="module")
def cli(environment: dict[str, str]) -> Cli:
    """Return a function that runs the program to its end."""

    def run(*words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        command = ["node", str(PROGRAM), *words]
        return subprocess.run(command, env=environment, input=given, capture_output=True, timeout=120, check=False)

    return run


@line("O01", "O06", "B15")
def test_a_sandbox_lives_and_ends(cli: Cli, machine: Place) -> None:
    created = cli("sandbox", "create", "base", "--detach")
    assert created.returncode == 0, created.stderr
    (sandbox_id,) = set(re.findall(rb"\bi[a-z0-9]{19}\b", created.stdout))
    name = sandbox_id.decode()
    try:
        assert sandbox_id in cli("sandbox", "list").stdout
        assert sandbox_id in cli("sandbox", "info", name).stdout
    finally:
        assert cli("sandbox", "kill", name).returncode == 0
    listed = json.loads(cli("sandbox", "list", "--format", "json").stdout)
    assert name not in [one["sandboxId"] for one in listed]


@line("O06")
def test_a_list_is_filtered_by_metadata(cli: Cli, machine: Place) -> None:
    def listed(metadata: str) -> list[str]:
        answer = cli("sandbox", "list", "--format", "json", "--metadata", metadata)
        return [one["sandboxId"] for one in json.loads(answer.stdout)]

    assert machine.sandbox_id in listed("is=shared")
    assert listed(f"is={uuid.uuid4().hex}") == []


@line("O02", "D21")
def test_exec_ends_as_the_command_does(cli: Cli, machine: Place) -> None:
    result = cli("sandbox", "exec", machine.sandbox_id, "--", "echo out; echo err >&2; exit 3")
    # The last line is the client's own.
    assert (result.returncode, result.stdout, result.stderr) == (3, b"out\n", b"err\nexit status 3\n")


@line("O03")
def test_exec_passes_piped_input(cli: Cli, machine: Place) -> None:
    content = b"".join(b"%d\n" % n for n in range(40_000))
    result = cli("sandbox", "exec", machine.sandbox_id, "cat", given=content)
    assert (result.returncode, result.stdout) == (0, content)


@line("O04")
def test_exec_in_the_background_tells_the_pid(cli: Cli, machine: Place) -> None:
    shared = Sandbox.connect(machine.sandbox_id, **machine.options)
    result = cli("sandbox", "exec", "--background", machine.sandbox_id, "sleep 600")
    assert result.returncode == 0, result.stderr
    (pid,) = [int(word) for word in re.findall(rb"\d+", result.stdout + result.stderr)]
    assert shared.commands.kill(pid)


@line("K04")
def test_metrics_are_printed(cli: Cli, machine: Place) -> None:
    result = cli("sandbox", "metrics", machine.sandbox_id)
    assert result.returncode == 0
    assert re.search(rb"cpu", result.stdout, re.IGNORECASE), result.stdout


@line("O08")
def test_a_retired_command_says_so(cli: Cli) -> None:
    assert cli("template", "build").returncode == 1


@contextlib.contextmanager
def terminal(environment: dict[str, str], *words: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run the program in a terminal of 24 lines and 80 columns; yield it with the user's end."""
    user, program = pty.openpty()
    set_size(user, 24, 80)
    take_terminal = ["setsid", "--ctty", "--wait"]
    process = subprocess.Popen(
        [*take_terminal, "node", PROGRAM, *words], env=environment, stdin=program, stdout=program, stderr=program
    )
    try:
        yield process, user
    finally:
        process.kill()
        process.wait()
        os.close(program)
        os.close(user)


def set_size(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(descriptor: int, mark: bytes) -> None:
    shown = b""
    while mark not in shown:
        assert select.select([descriptor], [], [], 30)[0], f"{mark!r} was never shown, but {shown!r}"
        shown += os.read(descriptor, 65536)


@line("H09", "D21")
def test_a_terminal_opens_resizes_and_ends(environment: dict[str, str], machine: Place) -> None:
    with terminal(environment, "sandbox", "connect", machine.sandbox_id) as (process, user):
        read_until(user, b"$ ")
        os.write(user, b"stty size\r")
        read_until(user, b"24 80")
        set_size(user, 30, 100)
        os.write(user, b"until [ \"$(stty size)\" = '30 100' ]; do sleep 0.1; done; echo resi''zed\r")
        read_until(user, b"resized")
        os.write(user, b"exit\r")
        assert process.wait(30) == 0
