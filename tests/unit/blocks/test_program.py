"""Which program is started, which copies go, and how processes of a daemon are told from others."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentenv.base.process import ProcessIdentity, spawn_detached
from agentenv.blocks import program
from agentenv.blocks.errors import DaemonUnprepared
from agentenv.blocks.processes import find_daemon

INPUTS = "0123456789abcdef" * 4
PROGRAM = "import time; time.sleep(60)"


def _copy(directory: Path, inputs: str, *, age_seconds: int = 0) -> Path:
    path = program.place(directory, inputs)
    path.write_bytes(b"program")
    os.utime(path, (10_000 - age_seconds, 10_000 - age_seconds))
    return path


def test_nothing_is_started_before_setup(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnprepared, match="run `aenv setup`"):
        program.find(tmp_path)


def test_program_in_use_is_the_one_that_was_chosen_last(tmp_path: Path) -> None:
    first, second = _copy(tmp_path, INPUTS), _copy(tmp_path, "f" * 64)
    program.use(tmp_path, first)
    program.use(tmp_path, second)
    assert program.find(tmp_path) == second
    second.unlink()
    assert program.current(tmp_path) is None


def test_replaced_programs_go_unless_they_are_young_or_used(tmp_path: Path) -> None:
    used, young, old = _copy(tmp_path, "a" * 64, age_seconds=9000), _copy(tmp_path, "b" * 64), tmp_path / "other"
    gone = _copy(tmp_path, "c" * 64, age_seconds=9000)
    old.write_bytes(b"not ours")
    program.use(tmp_path, used)
    assert program.remove_replaced(tmp_path, now=10_000) == [gone]
    assert {path.name for path in tmp_path.iterdir()} == {used.name, young.name, "other", "aenv-blockd"}


@pytest.mark.parametrize(
    "words",
    [
        ("serve",),
        ("serve", "--state"),
        ("serve", "--state", "/elsewhere"),
        ("--state",),
        ("--state", "/elsewhere"),
    ],
)
def test_processes_with_other_words_are_not_taken_for_a_daemon(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_shell_serve(tmp_path, monkeypatch)
    with _running(*words):
        assert find_daemon(tmp_path / "state").all == ()


def test_supervisor_and_server_are_known_by_their_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_shell_serve(tmp_path, monkeypatch)
    state = tmp_path / "state"
    with _running("--state", str(state)) as supervisor, _running("serve", "--state", str(state)) as server:
        found = find_daemon(state)
        assert (found.supervisor, found.servers, found.keeper) == (
            supervisor,
            (server,),
            supervisor,
        )
    assert find_daemon(state).keeper is None


def _make_shell_serve(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "serve").write_text("kill -STOP $$\n")
    monkeypatch.chdir(directory)


@contextmanager
def _running(*words: str) -> Iterator[ProcessIdentity]:
    """Run a process with these words after its program, for as long as the block lasts."""
    # Python takes what follows `-c` as words of the program; a shell looks for its first word in this directory.
    command = ["/bin/bash", *words] if words[0] == "serve" else [sys.executable, "-c", PROGRAM, *words]
    null = os.open(os.devnull, os.O_WRONLY)
    identity = spawn_detached(command, stderr=null)
    os.close(null)
    try:
        # A process has its own words only when it has become its program.
        while words != tuple(Path(f"/proc/{identity.pid}/cmdline").read_text().split("\0")[-len(words) - 1 : -1]):
            os.sched_yield()
        yield identity
    finally:
        identity.kill()
        os.waitpid(identity.pid, 0)
