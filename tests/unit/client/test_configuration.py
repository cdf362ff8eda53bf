import stat
from pathlib import Path

import pytest

from agentenv.client.base import Flags
from agentenv.client.configuration import Source, forget_key, is_loopback, load, locate, read_stored, store
from agentenv.client.errors import SettingsInvalid

REMOTE = "https://aenv.example.org"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "AENV_HOME": str(tmp_path / "server")}


def key_of(flags: Flags, environment: dict[str, str]) -> tuple[str | None, Source | None]:
    configuration = load(flags, environment)
    key = configuration.settings.api_key
    return (None if key is None else key.get_secret_value()), configuration.key_source


def write_server_key(environment: dict[str, str], content: str) -> None:
    path = Path(environment["AENV_HOME"]) / "api-key"
    path.parent.mkdir()
    path.write_text(content)


def test_nothing_configured_means_this_machine_and_no_key(environment: dict[str, str]) -> None:
    configuration = load(Flags(), environment)

    assert configuration.settings.api_url == "http://127.0.0.1:8000"
    assert (configuration.url_source, configuration.key_source) == (Source.DEFAULT, None)


def test_flags_go_before_the_environment_and_that_before_the_file(environment: dict[str, str]) -> None:
    store(locate(environment), REMOTE, "from-file")
    assert key_of(Flags(), environment) == ("from-file", Source.FILE)

    environment["E2B_API_KEY"] = "from-e2b"
    assert key_of(Flags(), environment) == ("from-e2b", Source.ENVIRONMENT)

    environment["AENV_API_KEY"] = "from-aenv"
    assert key_of(Flags(), environment) == ("from-aenv", Source.ENVIRONMENT)
    assert key_of(Flags(key="from-flag"), environment) == ("from-flag", Source.FLAG)


def test_urls_follow_the_same_order(environment: dict[str, str]) -> None:
    store(locate(environment), REMOTE, "k")
    assert load(Flags(), environment).settings.api_url == REMOTE

    environment |= {"E2B_API_URL": "http://e2b:1", "AENV_API_URL": ""}
    assert load(Flags(), environment).settings.api_url == "http://e2b:1"
    assert load(Flags(url="http://flag:1/"), environment).settings.api_url == "http://flag:1"


def test_the_key_of_the_file_goes_to_no_other_server(environment: dict[str, str]) -> None:
    path = locate(environment)
    store(path, REMOTE, "from-file")
    path.write_text(path.read_text() + 'sandbox_url = "https://s.example.org"\n')
    environment["E2B_SANDBOX_URL"] = "https://s.example.org"

    configuration = load(Flags(url="http://evil.example.org"), environment)

    assert configuration.settings.api_key is None
    assert configuration.settings.sandbox_url is None


def test_the_local_servers_key_is_used_on_this_machine_only(environment: dict[str, str]) -> None:
    write_server_key(environment, "local\n")

    assert key_of(Flags(), environment) == ("local", Source.LOCAL_SERVER)
    assert key_of(Flags(url="http://localhost:9"), environment) == ("local", Source.LOCAL_SERVER)
    assert key_of(Flags(url=REMOTE), environment) == (None, None)


def test_an_unusable_server_key_is_no_key(environment: dict[str, str]) -> None:
    write_server_key(environment, "  \n")

    assert key_of(Flags(), environment) == (None, None)


def test_the_file_is_readable_by_its_owner_alone(environment: dict[str, str]) -> None:
    path = locate(environment)

    store(path, REMOTE, "k")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_storing_keeps_other_keys_and_logging_out_keeps_the_url(environment: dict[str, str]) -> None:
    path = locate(environment)
    path.parent.mkdir(parents=True)
    path.write_text(f'silence_limit_seconds = 7\napi_url = "{REMOTE}"\nsandbox_url = "http://{{port}}-{{id}}.x:80"\n')

    store(path, REMOTE, 'quo"te\\')
    assert key_of(Flags(), environment) == ('quo"te\\', Source.FILE)

    assert forget_key(path)
    assert not forget_key(path)
    assert read_stored(path) == {
        "api_url": REMOTE,
        "sandbox_url": "http://{port}-{id}.x:80",
        "silence_limit_seconds": 7,
    }


def test_storing_another_server_drops_the_way_into_the_sandboxes_of_the_first(environment: dict[str, str]) -> None:
    path = locate(environment)
    path.parent.mkdir(parents=True)
    path.write_text('api_url = "http://first:1"\nsandbox_url = "http://first:2"\n')

    store(path, REMOTE, "k")

    assert read_stored(path) == {"api_url": REMOTE, "api_key": "k"}


def test_the_environment_can_lead_sandbox_traffic_elsewhere(environment: dict[str, str]) -> None:
    environment |= {
        "AENV_API_URL": REMOTE,
        "E2B_SANDBOX_URL": "http://a:1",
        "AENV_SANDBOX_URL": "http://{port}-{id}.b:2/",
    }

    assert load(Flags(), environment).settings.url_into("i1", 49983) == "http://49983-i1.b:2"


@pytest.mark.parametrize(
    "content, message",
    [
        ("colour = 1", "colour"),
        ("api_url = 5", "api_url"),
        ('api_url = "ftp://x"', "http://host:port"),
        ("api_url = ", "cannot read"),
        ("request_timeout_seconds = 0", "greater than 0"),
    ],
)
def test_a_bad_file_is_refused_by_name(environment: dict[str, str], content: str, message: str) -> None:
    path = locate(environment)
    path.parent.mkdir(parents=True)
    path.write_text(content)

    with pytest.raises(SettingsInvalid, match=message) as caught:
        load(Flags(), environment)

    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    "url", ["x", "http://", "http://a b", "http://u@h", "http://h?q", "http://h:99999", "http://[", "http://ü"]
)
def test_bad_urls_are_refused(environment: dict[str, str], url: str) -> None:
    with pytest.raises(SettingsInvalid, match="api_url"):
        load(Flags(url=url), environment)


@pytest.mark.parametrize("key", ["a b", "a\nX-Other: 1", "schlüssel"])
def test_keys_that_cannot_stand_in_a_header_are_refused_unseen(environment: dict[str, str], key: str) -> None:
    with pytest.raises(SettingsInvalid, match="api_key") as caught:
        load(Flags(key=key), environment)

    assert key not in caught.value.message


def test_the_configuration_directory_follows_the_desktop_standard(tmp_path: Path) -> None:
    assert locate({"HOME": "/h"}) == Path("/h/.config/agentenv/config.toml")
    assert locate({"HOME": "/h", "XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "agentenv/config.toml"


@pytest.mark.parametrize(
    "url, expected",
    [
        ("http://127.0.0.1:8000", True),
        ("http://127.8.9.1", True),
        ("http://[::1]:1", True),
        ("http://localhost", True),
        ("http://localhost.evil.org", False),
        ("http://10.0.0.1", False),
        ("nonsense", False),
    ],
)
def test_loopback(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected
