"""Settings of `snapshots`: where they are kept, and when old bytes go."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_OptionalPath = Annotated[
    Path | None,
    BeforeValidator(lambda value: None if value == "" else value),
    AfterValidator(lambda path: None if path is None else path.absolute()),
]


class RepositoryKind(StrEnum):
    """What a repository stands on."""

    POSIX_FS = "posix_fs"
    OSS = "oss"


class SnapshotsSettings(BaseModel):
    """Where snapshots and paused sandboxes are kept, and when old bytes go."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repository: RepositoryKind = Field(
        default=RepositoryKind.POSIX_FS,
        description="`posix_fs`: a directory, of this host or shared by nodes. `oss`: the bucket of table [objects].",
    )
    directory: _OptionalPath = Field(
        default=None, description="Directory of a `posix_fs` repository. Empty: `snapshots` below `home`."
    )
    refresh_seconds: float = Field(
        default=30, gt=0, le=3600, description="How long lists may not show what another node has published."
    )
    collect_interval_seconds: float = Field(
        default=600, gt=0, description="Files that nothing needs are looked for this often."
    )
    grace_seconds: float = Field(
        default=3600,
        ge=0,
        description="A file that nothing needs is set aside after this time, and removed after this time again. Keep "
        "it above 300 where several nodes share a repository.",
    )
    lease_expiry_seconds: float = Field(
        default=86400,
        gt=0,
        description="What the sandboxes of another node read is kept until that node has been silent for so long.",
    )
    retention_seconds: float = Field(
        default=0, ge=0, description="Delete snapshots that have neither a name nor a child at this age. 0: never."
    )
    compact_above_layers: int = Field(
        default=16,
        ge=4,
        le=200,
        description="Merge layers of a snapshot in the background when its disk, or its memory, has more than this.",
    )
