"""Settings of `orchestrator`."""

from pydantic import BaseModel, ConfigDict, Field


class OrchestratorSettings(BaseModel):
    """How many sandboxes this node takes, and how long they live."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_sandboxes: int = Field(default=1000, ge=1, description="No more sandboxes than this exist at once.")
    max_memory_mib: int = Field(
        default=0,
        ge=0,
        description="The guests' memory may add up to this many MiB; 0 means 80 % of this machine's memory.",
    )
    max_concurrent_starts: int = Field(
        default=0,
        ge=0,
        description="So many sandboxes boot at once, the others wait their turn; 0 means one per processor.",
    )
    max_waiting_starts: int = Field(
        default=256, ge=0, description="So many creations may wait for their turn; one more is answered with 429."
    )
    max_timeout_seconds: int = Field(
        default=86_400, ge=1, description="The longest life that a client can ask for, from now."
    )
    retry_after_seconds: int = Field(
        default=5, ge=1, description="What a client is told to wait after an answer of 429."
    )
    metrics_interval_seconds: float = Field(
        default=15, gt=0, description="How often the counters of each running guest are read."
    )
    metrics_readings: int = Field(default=240, ge=1, description="How many readings of each guest are kept.")
    expiries_at_once: int = Field(default=16, ge=1, description="How many expired sandboxes are ended side by side.")
