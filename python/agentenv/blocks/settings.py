"""Settings of `blocks`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# TOML has no null, so an empty string is how a configuration file says "not set".
_OptionalPath = Annotated[Path | None, BeforeValidator(lambda value: None if value == "" else value)]


class DiskExporter(StrEnum):
    """How disks are shown to monitors. Memory images are always files."""

    AUTO = "auto"
    FUSE = "fuse"
    UBLK = "ublk"


class BlocksSettings(BaseModel):
    """Disks and memory images, served by the block daemon."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    binary_path: _OptionalPath = Field(
        default=None,
        description="A static aenv-blockd to use. Empty: the one that `aenv setup` builds from the checkout.",
    )
    reserve_mib: int = Field(
        default=1024,
        ge=0,
        description="No disk is made while the file system of `home` has less free space than this; 507 instead.",
    )
    cache_mib: int = Field(
        default=10240, ge=64, description="Blocks of remote layers that are kept on the local disk take at most this."
    )
    exporter: DiskExporter = Field(
        default=DiskExporter.FUSE,
        description="How monitors see disks: `fuse` as files; `ublk` as block devices, for which the kernel module"
        " ublk_drv of Linux 6.5 or newer must be loaded; `auto` as block devices where that is so.",
    )
    request_timeout_seconds: float = Field(
        default=30,
        gt=0,
        le=600,
        description="The block daemon may take this long to answer; sixty times as long to seal a layer.",
    )
    start_timeout_seconds: float = Field(
        default=20, gt=0, le=600, description="The block daemon may take this long to start."
    )
