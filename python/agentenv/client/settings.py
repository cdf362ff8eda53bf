"""What a client must know of its server, checked. Where the values come from is `configuration`'s business."""

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

DEFAULT_API_URL = "http://127.0.0.1:8000"


class ClientSettings(BaseModel):
    """How to reach a server and its sandboxes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    api_url: str = Field(DEFAULT_API_URL, description="Base URL of the server's API.")
    api_key: SecretStr | None = Field(None, description="Key sent to the API, and to nothing else.")
    sandbox_url: str | None = Field(
        None,
        description="Base URL of traffic into sandboxes; `{port}` and `{id}` are filled in. None: the API's URL.",
    )
    connect_timeout_seconds: float = Field(10, gt=0, description="Longest wait for a connection.")
    request_timeout_seconds: float = Field(60, gt=0, description="Longest wait for an answer, retries included.")
    keepalive_seconds: int = Field(30, gt=0, description="A silent stream must say that it is alive this often.")
    silence_limit_seconds: float = Field(120, gt=0, description="A stream silent for longer than this is lost.")

    @field_validator("api_url", "sandbox_url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("must be printable ASCII without spaces")
        parts = urlsplit(url.replace("{port}", "1").replace("{id}", "i"))
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be like http://host:port")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError("must hold no query, fragment or user name")
        _ = parts.port  # reading it is what checks it
        return url.rstrip("/")

    @field_validator("api_key")
    @classmethod
    def _check_key(cls, key: SecretStr | None) -> SecretStr | None:
        text = "-" if key is None else key.get_secret_value()
        if not text or not all("!" <= character <= "~" for character in text):
            raise ValueError("must be printable ASCII without spaces")
        return key

    def url_into(self, sandbox_id: str, port: int) -> str:
        """Return the base URL of `port` of a sandbox; the routing headers are needed in every case."""
        base = self.sandbox_url or self.api_url
        return base.replace("{port}", str(port)).replace("{id}", sandbox_id)
