"""Settings of the data plane."""

from pydantic import BaseModel, ConfigDict, Field


class ProxySettings(BaseModel):
    """Bounds of the data plane. There is no limit on how long an exchange takes, nor on a body's size."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect_timeout_seconds: float = Field(
        default=5.0, gt=0, description="How long a guest may take to accept a connection before the client gets 502."
    )
    idle_connection_seconds: float = Field(
        default=4.0,
        gt=0,
        description="How long an unused connection to a guest is kept. Keep it below the keep-alive timeout of common"
        " servers (5 s), or requests can meet a connection that the guest is just closing.",
    )
    idle_connections_per_sandbox: int = Field(
        default=16, ge=0, description="How many unused connections to one sandbox are kept for the next request."
    )
    exchanges_per_sandbox: int = Field(
        default=1024, ge=1, description="How many requests and open streams one sandbox may carry at once; then 429."
    )
    head_limit_bytes: int = Field(
        default=65536, ge=1024, description="Largest head (status line and headers) of an answer taken from a guest."
    )
    read_buffer_bytes: int = Field(
        default=131072, ge=4096, description="Bytes of one answer held while the client is slow; then the guest waits."
    )
    trust_forwarded_headers: bool = Field(
        default=False,
        description="Keep X-Forwarded-* and Forwarded of the request. Only behind a proxy of yours that sets them.",
    )
