"""The home directory has one server; its key is private and generated once."""

import re
import stat
from pathlib import Path

import pytest

from agentenv.main import keys
from agentenv.main.home import Home, HomeInUse, HomeLock, HomeUnusable
from agentenv.main.keys import KeyRing, KeyUnusable


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


def test_a_second_server_is_refused_until_the_first_lets_go(home: Home) -> None:
    lock = HomeLock(home)
    with pytest.raises(HomeInUse, match="another server uses"):
        HomeLock(home)
    lock.release()
    HomeLock(home).release()


def test_a_home_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeUnusable, match="cannot be used"):
        Home(tmp_path / "file" / "home").make()


def test_the_key_is_generated_once_and_private(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(keys.ENVIRONMENT, raising=False)
    key = keys.obtain(home)
    assert keys.obtain(home) == key
    assert len(key) >= 48
    # Older clients refuse a key of any other form before they send anything.
    assert re.fullmatch("e2b_[0-9a-f]+", key)
    assert stat.S_IMODE(home.api_key.stat().st_mode) == 0o600


def test_the_environment_gives_the_key(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(keys.ENVIRONMENT, "k")
    assert keys.obtain(home) == "k"
    assert not home.api_key.exists()


@pytest.mark.parametrize("key", ["two words", "ümlaut", "x" * 257, "a\nb"])
def test_a_key_that_cannot_be_a_header_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv(keys.ENVIRONMENT, key)
    with pytest.raises(KeyUnusable, match=keys.ENVIRONMENT):
        keys.obtain(home)


def test_only_our_keys_are_accepted() -> None:
    ring = KeyRing(["one", "two"])
    assert ring.accepts("one")
    assert ring.accepts("two")
    assert not any(ring.accepts(key) for key in ("", "One", "one ", "onetwo", "\udcff"))
