"""Reads the key of an object store from a file in the form that the AWS tools use. Never logs what it reads."""

import configparser
from dataclasses import dataclass, field
from pathlib import Path

from agentenv.objects.errors import StoreUnfit

_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key; the session token goes with temporary ones."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def read(path: Path) -> Credentials:
    """Return the `[default]` credentials. Raises `StoreUnfit`."""
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_string(file.read(_LIMIT_BYTES))
        section = parser["default"]
        return Credentials(
            access_key_id=section["aws_access_key_id"],
            secret_access_key=section["aws_secret_access_key"],
            session_token=section.get("aws_session_token"),
        )
    except OSError as error:
        raise StoreUnfit(f"the credentials file {path} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise StoreUnfit(f"the credentials file {path} lacks {error}") from None
    except (configparser.Error, UnicodeDecodeError):
        # What the parser says quotes the line, and with it the secret.
        raise StoreUnfit(f"the credentials file {path} is not in the form of the AWS tools") from None
