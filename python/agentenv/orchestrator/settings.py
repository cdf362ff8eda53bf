"""Settings of `orchestrator`."""

from pydantic import BaseModel, ConfigDict, Field


class OrchestratorSettings(BaseModel):
    """How many sandboxes this node takes, and how long they live."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_sandboxes: int = Field(
        default=1000, ge=1, description="No more sandboxes than this run at once; paused ones do not count."
    )
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
    auto_pause: bool = Field(
        default=True,
        description="What happens to a sandbox whose time is over when its creator did not say: it is paused, or, with"
        " false, deleted.",
    )
    auto_resume_min_timeout_seconds: int = Field(
        default=300, ge=1, description="A sandbox that traffic wakes lives for at least so long."
    )
    wake_timeout_seconds: float = Field(
        default=60, gt=0, description="A request to a sandbox that has to be resumed first waits at most so long."
    )
    verb_wait_seconds: float = Field(
        default=60, gt=0, description="How long a verb waits for another one of the same sandbox; then 409."
    )
    pause_retry_seconds: float = Field(
        default=30, gt=0, description="When pausing an expired sandbox failed, it is tried again after this."
    )
    pauses_at_stop: int = Field(default=4, ge=1, description="How many sandboxes are paused side by side at a stop.")
    pause_at_stop_seconds: float = Field(
        default=50,
        gt=0,
        description="Pausing everything at a stop may take this long; what is not paused by then is left running for"
        " the next server. Must be below server.stop_timeout_seconds.",
    )
    retry_after_seconds: int = Field(
        default=5, ge=1, description="What a client is told to wait after an answer of 429."
    )
    metrics_interval_seconds: float = Field(
        default=15, gt=0, description="How often the counters of each running guest are read."
    )
    metrics_readings: int = Field(default=240, ge=1, description="How many readings of each guest are kept.")
    expiries_at_once: int = Field(
        default=16, ge=1, description="How many expired sandboxes are paused or ended side by side."
    )
