"""`scripts/build-core`: it builds once, two at once take turns, and a kill leaves nothing that is believed.

Cargo is a script here; the real one is at work in every `make`.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[3]
_CARGO = """#!/bin/sh
case $* in
*aenv-preload*)
    mkdir -p target/python/guest
    echo library >target/python/guest/libaenv_preload.so
    exit
    ;;
esac
echo cargo >>calls
[ -z "$SLOW" ] || { echo slow >started; cat gate >/dev/null; }
mkdir -p target/python/module
cat crates/aenv-python/src/lib.rs >target/python/module/libagentenv_core.so
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("scripts", "bin", "python", "crates/aenv-python/src"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml"):
        (tmp_path / name).write_text(name)
    (tmp_path / "crates/aenv-python/src/lib.rs").write_text("one")
    shutil.copy(_REPOSITORY / "scripts/build-core", tmp_path / "scripts/build-core")
    (tmp_path / "bin/cargo").write_text(_CARGO)
    (tmp_path / "bin/cargo").chmod(0o755)
    os.mkfifo(tmp_path / "gate")
    return tmp_path


def _begin(checkout: Path, *options: str, slow: bool = False) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"PATH": f"{checkout}/bin:{os.environ['PATH']}", "SLOW": "1" if slow else ""}
    command = [str(checkout / "scripts/build-core"), *options]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)


def _build(checkout: Path, *options: str) -> int:
    with _begin(checkout, *options) as build:
        return build.wait()


def _calls(checkout: Path) -> int:
    return (checkout / "calls").read_text().count("cargo")


def _module(checkout: Path) -> str:
    return (checkout / "python/agentenv_core.abi3.so").read_text()


def _await_start(checkout: Path, build: "subprocess.Popen[bytes]") -> None:
    while not (checkout / "started").exists():
        assert build.poll() is None


def test_it_builds_when_a_source_has_changed_and_only_then(checkout: Path) -> None:
    assert _build(checkout, "--check") == 1
    assert [_build(checkout), _build(checkout), _build(checkout, "--check")] == [0, 0, 0]
    assert (_calls(checkout), _module(checkout)) == (1, "one")
    (checkout / "crates/aenv-python/src/lib.rs").write_text("two")
    assert _build(checkout, "--check") == 1
    assert (_build(checkout), _module(checkout)) == (0, "two")
    for name in ("agentenv_core.abi3.so", "aenv_preload.so"):
        (checkout / "python" / name).unlink()
        assert (_build(checkout), _module(checkout)) == (0, "two")
        assert (checkout / "python/aenv_preload.so").read_text() == "library\n"


def test_two_at_once_build_once(checkout: Path) -> None:
    with _begin(checkout, slow=True) as first:
        _await_start(checkout, first)
        with _begin(checkout, slow=True) as second:
            (checkout / "gate").write_text("go on")
            assert (first.wait(), second.wait()) == (0, 0)
    assert (_calls(checkout), _module(checkout)) == (1, "one")


def test_a_source_that_changes_meanwhile_is_built_next_time(checkout: Path) -> None:
    with _begin(checkout, slow=True) as build:
        _await_start(checkout, build)
        (checkout / "Cargo.lock").write_text("changed")
        (checkout / "gate").write_text("go on")
        assert build.wait() == 0
    assert _build(checkout, "--check") == 1


def test_after_a_kill_the_next_run_builds(checkout: Path) -> None:
    assert _build(checkout) == 0
    (checkout / "crates/aenv-python/src/lib.rs").write_text("two")
    with _begin(checkout, slow=True) as build:
        _await_start(checkout, build)
        os.killpg(build.pid, signal.SIGKILL)
    assert _module(checkout) == "one"
    assert _build(checkout, "--check") == 1
    assert (_build(checkout), _module(checkout)) == (0, "two")
