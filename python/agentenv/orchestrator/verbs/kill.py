"""The verb kill: routing stops, the durable record goes, then everything is given back."""

from agentenv.base import log
from agentenv.base.ids import SandboxId
from agentenv.orchestrator import fleet as fleet_module
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.machine import Outcome, Verb

_log = log.get("orchestrator")


async def kill(fleet: Fleet, sandbox_id: SandboxId, cause: str) -> None:
    """End a running sandbox. What cannot be given back is logged and collected at the next start.

    The record goes first: should this process die on the way, what is left belongs to nobody and is collected.
    """
    begin = fleet.clock.monotonic()
    record = fleet.book.get(sandbox_id)
    fleet.book.change_sandbox(record, state=SandboxState.STOPPING)
    fleet.deadlines.clear(sandbox_id)
    live = fleet.live.pop(sandbox_id)
    fleet.cut(sandbox_id)
    try:
        await fleet.book.erase(sandbox_id)
    finally:
        await live.end()
        fleet.book.remove(sandbox_id)
        fleet.admission.leave(sandbox_id)
        took = fleet.clock.monotonic() - begin
        fleet_module.ends.labels(cause=cause).inc()
        fleet_module.verb_seconds.labels(verb=Verb.KILL, outcome=Outcome.DONE).observe(took)
        _log.info("sandbox_killed", sandbox_id=sandbox_id, cause=cause, took_ms=round(took * 1000))
