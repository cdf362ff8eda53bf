"""Admission: whether one more sandbox fits on this node. Counts what is being made, runs, or is not yet gone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentenv.orchestrator.errors import AdmissionRefused


@dataclass(frozen=True, slots=True)
class Limits:
    """What this node takes at most."""

    sandboxes: int
    memory_mib: int
    waiting_starts: int
    retry_after_seconds: int


class Admission:
    """Keeps count of places and memory; a place is given back when its sandbox has gone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._memory_by_holder: dict[str, int] = {}
        self._waiting = 0

    @property
    def memory_mib(self) -> int:
        """The memory that is promised to guests now."""
        return sum(self._memory_by_holder.values())

    def enter(self, holder: str, memory_mib: int) -> None:
        """Take a place. Raises `AdmissionRefused`, which names the limit."""
        limits = self._limits
        if len(self._memory_by_holder) >= limits.sandboxes:
            raise self._refusal(f"this node holds {limits.sandboxes} sandboxes, its limit (orchestrator.max_sandboxes)")
        if self.memory_mib + memory_mib > limits.memory_mib:
            raise self._refusal(
                f"this node has promised {self.memory_mib} of {limits.memory_mib} MiB of memory to sandboxes and "
                f"{memory_mib} more do not fit (orchestrator.max_memory_mib)"
            )
        self._memory_by_holder[holder] = memory_mib

    def readmit(self, holder: str, memory_mib: int) -> None:
        """Take a place for a sandbox that runs already, whatever the limits say."""
        self._memory_by_holder[holder] = memory_mib

    def leave(self, holder: str) -> None:
        """Give a place back. Can be called again."""
        self._memory_by_holder.pop(holder, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stand in the queue of starts. Raises `AdmissionRefused` when it is too long."""
        if self._waiting >= self._limits.waiting_starts:
            raise self._refusal(f"{self._waiting} creations wait already (orchestrator.max_waiting_starts)")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _refusal(self, message: str) -> AdmissionRefused:
        return AdmissionRefused(message, retry_after_seconds=self._limits.retry_after_seconds)
