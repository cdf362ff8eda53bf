"""Settings of `objects`: the S3-compatible store, where one is used."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

_Endpoint = Annotated[str, StringConstraints(pattern=r"^(https?://[A-Za-z0-9.:\[\]_-]+)?$")]
_Prefix = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$")]


class ObjectsSettings(BaseModel):
    """An S3-compatible object store, for `snapshots.repository = "oss"`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: _Endpoint = Field(
        "", description="Address of the store, as `https://host:port`, without the bucket; plain http is accepted."
    )
    bucket: str = Field("", description="Name of a bucket that exists.")
    prefix: _Prefix = Field("agentenv", description="What all our keys in the bucket begin with; may be empty.")
    credentials_path: Path = Field(
        Path("/etc/agentenv/objects-credentials.json"),
        description="JSON file with `access_key_id`, `secret_access_key`, and where needed `session_token` and "
        "`region`; only root should be able to read it.",
    )
    conditional_writes: bool = Field(
        default=True,
        description="The store honours If-Match and If-None-Match, which is proven at the start. With false, only one "
        "node may ever write: two that change the same name at once overwrite each other unnoticed.",
    )
    timeout_seconds: float = Field(
        30, gt=0, le=600, description="One request, or one part of an upload, may take this."
    )
    max_retries: int = Field(
        4, ge=0, le=20, description="How often a request that failed is made again, with back-off."
    )
    cache_mib: int = Field(
        10240, ge=64, description="Size of the local copies of blobs, kept so that a node restores its own quickly."
    )
