"""Where the client's settings come from: flags, then the environment, then the file, then defaults.

Invariant: a key is sent only to the server that it belongs to. The file's key goes to the file's URL, and the
key of a server on this machine goes to a loopback address.
"""

import ipaddress
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from agentenv.base.files import write_atomically
from agentenv.client.base import Flags
from agentenv.client.errors import SettingsInvalid
from agentenv.client.settings import DEFAULT_API_URL, ClientSettings

_URL_VARIABLES = ("AENV_API_URL", "E2B_API_URL")
_KEY_VARIABLES = ("AENV_API_KEY", "E2B_API_KEY")
_SANDBOX_URL_VARIABLES = ("AENV_SANDBOX_URL", "E2B_SANDBOX_URL")
_SERVER_HOME = "/var/lib/agentenv"
_KEY_FILE_BYTES = 4096


class Source(StrEnum):
    """Where a value was found, in words for people."""

    FLAG = "the command line"
    ENVIRONMENT = "the environment"
    FILE = "the configuration file"
    LOCAL_SERVER = "the key file of the server on this machine"
    DEFAULT = "the default"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, and where the two that matter most were found. `key_source` None means that there is no key."""

    settings: ClientSettings
    url_source: Source
    key_source: Source | None


def locate(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's configuration file."""
    base = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or "~").expanduser() / ".config"
    return Path(base) / "agentenv" / "config.toml"


def load(flags: Flags, environment: Mapping[str, str]) -> Configuration:
    """Return the settings that hold now. Raises `SettingsInvalid`."""
    path = locate(environment)
    stored = read_stored(path)
    file_url = _text(stored, "api_url")
    url, url_source = _first(
        (flags.url, Source.FLAG),
        (_variable(environment, _URL_VARIABLES), Source.ENVIRONMENT),
        (file_url, Source.FILE),
        (DEFAULT_API_URL, Source.DEFAULT),
    )
    is_file_server = url is not None and url.rstrip("/") == (file_url or DEFAULT_API_URL).rstrip("/")
    key, key_source = _first(
        (flags.key, Source.FLAG),
        (_variable(environment, _KEY_VARIABLES), Source.ENVIRONMENT),
        (_text(stored, "api_key") if is_file_server else None, Source.FILE),
        (_local_server_key(url or "", environment), Source.LOCAL_SERVER),
    )
    # A flag names a server of its own: the environment's sandbox address, like the file's, belongs to another one.
    sandbox_url = None if url_source is Source.FLAG else _variable(environment, _SANDBOX_URL_VARIABLES)
    if sandbox_url is None and is_file_server:
        sandbox_url = _text(stored, "sandbox_url")
    settings = validate({**stored, "api_url": url, "api_key": key, "sandbox_url": sandbox_url})
    return Configuration(settings, url_source or Source.DEFAULT, key_source)


def read_stored(path: Path) -> dict[str, object]:
    """Return what the configuration file says; a file that is not there says nothing."""
    try:
        stored = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsInvalid(f"cannot read {path}: {error}; correct it, or remove it") from error
    try:
        validate(stored)
    except SettingsInvalid as error:
        raise SettingsInvalid(f"{path}: {error.message}") from error
    return stored


def store(path: Path, url: str, key: str) -> None:
    """Write a server and its key into the configuration file, readable by its owner alone; other settings stay."""
    values = read_stored(path)
    if values.get("api_url") != url:
        values.pop("sandbox_url", None)  # it leads into the sandboxes of the server that was stored before
    values |= {"api_url": url, "api_key": key}
    validate(values)
    _write(path, values)


def forget_key(path: Path) -> bool:
    """Remove the stored key and return whether there was one."""
    values = read_stored(path)
    if values.pop("api_key", None) is None:
        return False
    _write(path, values)
    return True


def validate(values: Mapping[str, object]) -> ClientSettings:
    """Return the settings in `values`. Raises `SettingsInvalid` that names the first bad key, never its value."""
    try:
        return ClientSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise SettingsInvalid(f"{key}: {first['msg'].removeprefix('Value error, ')}") from None


def is_loopback(url: str) -> bool:
    """Return whether `url` names this very machine."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _write(path: Path, values: Mapping[str, object]) -> None:
    # A JSON string or number is also a TOML one, for the values that pass our check.
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in sorted(values.items()))
    write_atomically(path, text.encode(), mode=0o600)


def _first(*candidates: tuple[str | None, Source]) -> tuple[str | None, Source | None]:
    return next(((value, source) for value, source in candidates if value), (None, None))


def _variable(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _text(stored: Mapping[str, object], key: str) -> str | None:
    value = stored.get(key)
    return value if isinstance(value, str) else None


def _local_server_key(url: str, environment: Mapping[str, str]) -> str | None:
    if not is_loopback(url):
        return None
    path = Path(environment.get("AENV_HOME") or _SERVER_HOME) / "api-key"
    try:
        with path.open("rb") as file:
            return file.read(_KEY_FILE_BYTES).decode("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
