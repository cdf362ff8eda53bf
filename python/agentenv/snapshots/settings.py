"""Settings of `snapshots`: where they are kept, and when old bytes go."""

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


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
    directory: Path | None = Field(
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
    paused_retention_seconds: float = Field(
        default=0, ge=0, description="Delete paused sandboxes that nobody resumed for so long. 0: never."
    )
    snapshot_retention_seconds: float = Field(
        default=0, ge=0, description="Delete snapshots without a name and without children at this age. 0: never."
    )
    compact_above_layers: int = Field(
        default=16, ge=2, le=200, description="Merge the layers of a snapshot's disk or memory when it has more."
    )
    compact_above_dead_percent: int = Field(
        default=50, ge=1, le=100, description="Merge layers, too, when so much of them is hidden by newer ones."
    )
