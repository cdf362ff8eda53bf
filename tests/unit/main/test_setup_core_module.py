"""The step that builds the Rust half: what it asks the build, and what it says where there is none."""

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.steps.core_module import CoreModule

_BUILD = """#!/bin/sh
cd "$(dirname "$0")/.." && echo "$*" >>calls
[ "$1" = --check ] && exec test -e built
touch built
"""


def _step(checkout: Path | None, *, offline: bool = False) -> CoreModule:
    context: Any = SimpleNamespace(checkout=checkout, offline=offline)
    return CoreModule(context)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("scripts/build-core", _BUILD), ("bin/cargo", "")):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return tmp_path


async def test_the_module_is_built_once(checkout: Path) -> None:
    step = _step(checkout, offline=True)
    assert not (await step.inspect()).is_current
    await step.perform(lambda _: None)
    assert (await step.inspect()).is_current
    assert (checkout / "calls").read_text().splitlines() == ["--check", "--offline", "--check"]


async def test_without_cargo_it_says_who_brings_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    with pytest.raises(SetupFailed, match="make setup"):
        await _step(checkout).perform(lambda _: None)


async def test_an_installed_package_has_it_already() -> None:
    assert (await _step(None).inspect()).is_current
