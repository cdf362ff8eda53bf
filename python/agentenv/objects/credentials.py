"""Reads the key of an object store from its file, which `aenv-blockd` reads as well. Never logs what it reads."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from agentenv.objects.errors import StoreUnfit

_LIMIT_BYTES = 64 * 1024


class Credentials(BaseModel):
    """A key, and the region that requests are signed for; the session token goes with temporary keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    access_key_id: str = Field(min_length=1)
    secret_access_key: SecretStr = Field(min_length=1)
    session_token: SecretStr | None = None
    region: str = Field("us-east-1", min_length=1)


def read(path: Path) -> Credentials:
    """Return the credentials in a file. Raises `StoreUnfit`."""
    try:
        with path.open("rb") as file:
            return Credentials.model_validate_json(file.read(_LIMIT_BYTES))
    except OSError as error:
        raise StoreUnfit(f"the credentials file {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        # Not `from`: what it quotes may hold the secret.
        raise StoreUnfit(f"the credentials file {path} cannot be used: {where}: {first['msg']}") from None
