"""How long each step of a verb takes: for the log line at its end, and for the metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

from agentenv.base import metrics
from agentenv.base.clock import Clock
from agentenv.orchestrator.machine import Verb

_seconds = metrics.histogram("aenv_orchestrator_step_seconds", "Duration of a step of a verb.", ("verb", "step"))


class Steps:
    """The clock of one verb."""

    def __init__(self, verb: Verb, clock: Clock) -> None:
        self._verb = verb
        self._clock = clock
        self._begin = clock.monotonic()
        self._facts: dict[str, object] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step; its name is one of a closed set."""
        begin = self._clock.monotonic()
        try:
            yield
        finally:
            took = self._clock.monotonic() - begin
            _seconds.labels(verb=self._verb, step=name).observe(took)
            self._facts[f"{name}_ms"] = round(took * 1000)

    def note(self, **facts: object) -> None:
        """Add facts to the line that is logged at the end."""
        self._facts.update(facts)

    def seconds(self) -> float:
        """Return how long the verb has taken so far."""
        return self._clock.monotonic() - self._begin

    def facts(self) -> dict[str, object]:
        """Return the durations of the steps in milliseconds, and what was noted."""
        return dict(self._facts)
