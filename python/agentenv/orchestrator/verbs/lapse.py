"""The verb lapse: a machine has ended by itself, and the sandbox is what its newest checkpoint holds."""

from agentenv.base import aio
from agentenv.orchestrator.turns import Turn
from agentenv.orchestrator.verbs.pause import end_machine


async def lapse(turn: Turn, cause: str) -> None:
    """Bring the sandbox of a turn to its checkpoint."""
    turn.steps.note(cause=cause)
    await aio.finish(_lapse(turn))


async def _lapse(turn: Turn) -> None:
    fleet, record = turn.fleet, turn.record
    assert record.checkpoint is not None, "without a checkpoint a sandbox ends with its machine"
    fleet.deadlines.clear(record.id)
    await end_machine(fleet, record)
    # When this cannot be written, the next start finds a record whose machine has ended, and comes to the same.
    paused = record.paused(record.checkpoint)
    await fleet.book.save_or_log(paused)
    fleet.book.put(paused)
