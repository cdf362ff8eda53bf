"""Settings of `runtime`."""

from pydantic import BaseModel, ConfigDict, Field


class RuntimeSettings(BaseModel):
    """How sandboxes are started and ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    boot_timeout_seconds: float = Field(
        default=60, gt=0, le=3600, description="A guest that does not answer this long after its start is given up."
    )
    teardown_timeout_seconds: float = Field(
        default=20, gt=0, le=600, description="Each step of giving a sandbox's resources back may take this long."
    )
