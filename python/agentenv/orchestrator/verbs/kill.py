"""The verb kill: routing stops, the durable record goes or says so, then everything is given back.

Works whatever the sandbox's files are like: what cannot be deleted now is deleted by the next start.
"""

from agentenv.base import aio
from agentenv.base.errors import AgentEnvError
from agentenv.orchestrator import fleet as fleet_module
from agentenv.orchestrator import retirement
from agentenv.orchestrator.turns import Turn
from agentenv.runtime.live import Live


async def kill(turn: Turn, cause: str) -> None:
    """End a sandbox, running or paused, for good."""
    turn.steps.note(cause=cause)
    # A deletion that has begun is finished: it holds nothing that somebody could want back.
    await aio.finish(_kill(turn))
    fleet_module.ends.labels(cause=cause).inc()


async def _kill(turn: Turn) -> None:
    fleet, sandbox_id = turn.fleet, turn.sandbox_id
    fleet.deadlines.clear(sandbox_id)
    live = fleet.live.pop(sandbox_id, None)
    fleet.cut(sandbox_id)
    try:
        if await _owns_snapshots(turn):
            # A record that says `stopping` makes the next start finish what this process may not.
            await fleet.book.save_or_log(turn.record)
            await _end(turn, live)
            if await retirement.retire(fleet, sandbox_id, keep=None):
                await fleet.book.erase(sandbox_id)
        else:
            await fleet.book.erase(sandbox_id)
            await _end(turn, live)
        await retirement.release(fleet, sandbox_id)
    finally:
        fleet.book.remove(sandbox_id)
        fleet.admission.leave(sandbox_id)


async def _owns_snapshots(turn: Turn) -> bool:
    if turn.record.checkpoint is not None:
        return True
    try:
        return bool(await retirement.hidden_snapshots(turn.fleet, turn.sandbox_id))
    except AgentEnvError:
        return True


async def _end(turn: Turn, live: Live | None) -> None:
    if live is not None:
        with turn.step("end"):
            await live.end()
