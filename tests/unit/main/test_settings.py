"""Settings: every key is documented, what is unknown is refused, and the environment beats the file."""

import os
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from agentenv.main import settings
from agentenv.main.settings import Settings, SettingsInvalid

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have set variables of ours; they beat every file."""
    for name in [name for name in os.environ if name.startswith("AENV_")]:
        monkeypatch.delenv(name)


def test_the_default_file_is_the_models() -> None:
    text = (ROOT / "config" / "default.toml").read_text()
    assert text == settings.render_default(), "run `make config`"


def test_the_default_file_reads_back_as_the_defaults() -> None:
    assert settings.load(ROOT / "config" / "default.toml") == settings.load()


def test_every_key_has_a_description_and_a_default() -> None:
    for name, field in Settings.model_fields.items():
        assert not field.is_required(), name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            for key, inner in field.annotation.model_fields.items():
                assert inner.description, f"{name}.{key}"
                assert not inner.is_required(), f"{name}.{key}"


def test_a_file_changes_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'home = "{tmp_path}"\n[orchestrator]\nmax_sandboxes = 3\n')
    loaded = settings.load(file)
    assert (loaded.home, loaded.orchestrator.max_sandboxes) == (tmp_path, 3)
    assert loaded.orchestrator.max_timeout_seconds == Settings().orchestrator.max_timeout_seconds


def test_the_environment_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[orchestrator]\nmax_sandboxes = 3\nexpiries_at_once = 4\n")
    monkeypatch.setenv("AENV_ORCHESTRATOR__MAX_SANDBOXES", "5")
    loaded = settings.load(file)
    assert (loaded.orchestrator.max_sandboxes, loaded.orchestrator.expiries_at_once) == (5, 4)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[orchestrator]\nmax_sandboxen = 3\n", "orchestrator.max_sandboxen"),
        ("[orchestrator]\nmax_sandboxes = 0\n", "orchestrator.max_sandboxes"),
        ("nothing = 1\n", "nothing"),
        ("[orchestrator\n", "cannot be read"),
    ],
)
def test_a_key_that_cannot_be_obeyed_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SettingsInvalid, match=named):
        settings.load(file)


@pytest.mark.parametrize("name", ["AENV_ORCHESTRATR__MAX_SANDBOXES", "AENV_ORCHESTRATOR__MAX_SANDBOXEN"])
def test_a_misspelt_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "5")
    with pytest.raises(SettingsInvalid, match=r"ORCHESTRATR__MAX_SANDBOXES|max_sandboxen"):
        settings.load()


def test_a_relative_home_is_below_the_directory_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AENV_HOME", "state")
    assert settings.load().home == tmp_path / "state"


def test_a_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AENV_CONFIG", str(tmp_path / "absent.toml"))
    with pytest.raises(SettingsInvalid, match=r"absent\.toml"):
        settings.load()


def test_the_default_file_is_toml() -> None:
    assert tomllib.loads(settings.render_default())["home"]
