"""Settings of `runtime`."""

from pydantic import BaseModel, ConfigDict, Field


class RuntimeSettings(BaseModel):
    """How sandboxes are started, captured and ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    boot_timeout_seconds: float = Field(
        default=60, gt=0, le=3600, description="A guest that does not answer this long after its start is given up."
    )
    restore_timeout_seconds: float = Field(
        default=30, gt=0, le=3600, description="A restored guest that does not answer for this long is given up."
    )
    guest_sync_timeout_seconds: float = Field(
        default=10,
        gt=0,
        le=300,
        description="Before a capture, the guest may take this long to write out what it has not yet written to its"
        " disk; one that takes longer counts as not answering.",
    )
    memory_image_idle_seconds: float = Field(
        default=600, ge=0, description="A memory image that no sandbox uses stays open, and its pages warm, this long."
    )
    teardown_timeout_seconds: float = Field(
        default=20, gt=0, le=600, description="Each step of giving a sandbox's resources back may take this long."
    )
