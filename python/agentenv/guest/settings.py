"""Settings of `guest`: what a guest boots from."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# TOML has no null, so an empty string is how a configuration file says "not set".
OptionalPath = Annotated[Path | None, BeforeValidator(lambda value: None if value == "" else value)]


class GuestSettings(BaseModel):
    """What a guest boots from. Everything that is not set is provisioned by `aenv setup`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel_path: OptionalPath = Field(
        None,
        description="Guest kernel: an ELF vmlinux, a bzImage (x86-64) or an Image (arm64). "
        "Empty: the newest 6.12 cloud kernel of the distribution.",
    )
    kernel_modules_path: OptionalPath = Field(
        None,
        description="Modules of `kernel_path` (its lib/modules/<release> directory). "
        "Empty: that kernel has every driver built in.",
    )
    binary_path: OptionalPath = Field(
        None,
        description="Static guest daemon. Empty: built from crates/aenv-guest when this is a source checkout.",
    )
