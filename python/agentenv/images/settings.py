"""Settings of `images`: what the default base image is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

_PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
_Suite = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]*$")]


class ImagesSettings(BaseModel):
    """What `aenv setup` builds, and the size of a sandbox that does not ask for another."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_suite: _Suite = Field(
        "", description="Release that the base image is made from, by code name. Empty: the release of this host."
    )
    base_packages: tuple[_PackageName, ...] = Field(
        ("bash", "ca-certificates", "coreutils", "curl", "git", "procps", "python3", "sudo"),
        description="Packages in the base image besides the essential ones.",
    )
    base_disk_mib: int = Field(
        4096, ge=1024, le=1024 * 1024, description="Size of the base image's disk; it is sparse on the host."
    )
    default_vcpus: int = Field(2, ge=1, le=64, description="Virtual CPUs of a sandbox from the base image.")
    default_memory_mib: int = Field(512, ge=128, le=1024 * 1024, description="Memory of a sandbox from the base image.")
