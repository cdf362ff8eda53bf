"""The verb resume: a new machine goes on where the snapshot of the last pause ends.

Invariant: the snapshot stays until the next pause is durable. Until the record says `running`, the disk says `paused`:
a server that is killed on the way leaves a machine that nobody owns, and a paused sandbox.
"""

from dataclasses import dataclass, replace

from agentenv.orchestrator import retirement, sources
from agentenv.orchestrator.base import OnTimeout
from agentenv.orchestrator.errors import GuestWasUnresponsive
from agentenv.orchestrator.launching import launch_in_turn, make_running, plan_of
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.turns import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest:
    """How to resume: for how long, with the memory or by a cold boot; `auto_pause` None keeps what was asked for."""

    timeout_seconds: int
    with_memory: bool = True
    auto_pause: bool | None = None

    @property
    def words(self) -> str:
        """What makes two requests equal; how long it lives is settled afterwards."""
        return f"memory={self.with_memory} auto_pause={self.auto_pause}"


async def resume(turn: Turn, request: ResumeRequest) -> SandboxRecord:
    """Resume the sandbox of a turn and return its record. After an error it is paused as before."""
    fleet, record = turn.fleet, turn.record
    sandbox = record.sandbox
    checkpoint = record.checkpoint
    assert checkpoint is not None, "a paused sandbox has a checkpoint"
    if request.with_memory and sandbox.pause is not None and not sandbox.pause.guest_answered:
        raise GuestWasUnresponsive(
            f"the guest of sandbox '{sandbox.id}' did not answer when it was paused; resume it without its memory"
        )
    if request.auto_pause is not None:
        on_timeout = OnTimeout.PAUSE if request.auto_pause else OnTimeout.KILL
        record = replace(record, sandbox=replace(sandbox, on_timeout=on_timeout))
    fleet.admission.enter(sandbox.id, sandbox.memory_mib)
    try:
        with turn.step("prepare"):
            manifest = await fleet.repository.get(checkpoint.snapshot_id)
            source = await sources.of_snapshot(
                fleet,
                manifest,
                sandbox.id,
                template_id=sandbox.template_id,
                template_name=sandbox.template_name,
                with_memory=request.with_memory,
            )
        with turn.step("launch"):
            live = await launch_in_turn(fleet, plan_of(sandbox, source))
        with turn.step("record"):
            return await make_running(fleet, record, live, source, request.timeout_seconds)
    except BaseException:
        fleet.admission.leave(sandbox.id)
        if turn.sandbox_id not in fleet.live:
            await retirement.release(fleet, sandbox.id)
        raise
