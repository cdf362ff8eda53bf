"""Settings of the HTTP door."""

from pydantic import BaseModel, ConfigDict, Field


class ApiSettings(BaseModel):
    """Where the door listens, which names it answers to, and what a request may ask for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", description="Address to listen on; `0.0.0.0` for all.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    domains: tuple[str, ...] = Field(
        default=(),
        description="Names whose hosts `{port}-{sandbox}.{domain}` lead into sandboxes. The first one is told to"
        " clients as the sandbox's domain. Needs wildcard DNS.",
    )
    path_prefix: str = Field(
        default="",
        pattern=r"^(/[A-Za-z0-9._~/-]*[A-Za-z0-9._~-])?$",
        description="Prefix of all control-plane paths, when a proxy in front does not remove it.",
    )
    metrics_need_key: bool = Field(default=False, description="Ask for the API key on GET /metrics.")
    default_timeout_seconds: int = Field(
        default=300, ge=1, description="Lifetime of a sandbox made by POST /v2/sandboxes without `timeout`."
    )
    default_timeout_v1_seconds: int = Field(
        default=15, ge=1, description="Lifetime of a sandbox made by POST /sandboxes without `timeout`."
    )
    body_limit_bytes: int = Field(
        default=1048576, ge=1024, description="Largest body of a control-plane request; then 413."
    )
    head_line_limit_bytes: int = Field(default=32768, ge=1024, description="Longest request line or header; then 400.")
    header_count_limit: int = Field(default=256, ge=16, description="Most headers in one request; then 400.")
    connection_limit: int = Field(
        default=8192,
        ge=1,
        description="Most client connections at once; the next one is told 503. Each may need a second descriptor for"
        " its guest, so the limit of open files must be above twice this.",
    )
    idle_connection_seconds: float = Field(
        default=320.0,
        gt=0,
        description="How long a client may leave its connection unused. The SDKs give up after 300 s; closing first"
        " would make their next request fail.",
    )
    shutdown_grace_seconds: float = Field(
        default=5.0, gt=0, description="How long requests and streams may go on when the server stops."
    )
