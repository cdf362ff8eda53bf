"""The verb pause: everything that a sandbox is goes into a snapshot, then its machine ends.

Invariant: until the snapshot and the record that names it are durable, the machine is there to go on.
"""

from dataclasses import dataclass

from agentenv.orchestrator import retirement
from agentenv.orchestrator.capturing import Wish, take_snapshot
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.manifests import checkpoint_of
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.turns import Turn
from agentenv.snapshots.base import SnapshotKind, SnapshotManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequest:
    """How to pause: with memory or with the disk alone; only if the guest's daemon answers, or in any case."""

    with_memory: bool = True
    needs_guest: bool = False

    @property
    def words(self) -> str:
        """What makes two requests equal."""
        return f"memory={self.with_memory} guest={self.needs_guest}"


async def pause(turn: Turn, request: PauseRequest) -> None:
    """Pause the sandbox of a turn. After an error it runs on, with the deadline that it had."""
    fleet, sandbox_id = turn.fleet, turn.sandbox_id
    fleet.deadlines.clear(sandbox_id)
    if not request.needs_guest:
        # Before the guest stands still, so that it sees its clients go, and not only whoever resumes it.
        fleet.cut(sandbox_id)
    wish = Wish(
        kind=SnapshotKind.PAUSE,
        with_memory=request.with_memory,
        needs_guest=request.needs_guest or not request.with_memory,
        stay_stopped=True,
    )
    try:
        await take_snapshot(turn, wish, lambda manifest: _settle(turn, manifest))
    except BaseException:
        if sandbox_id in fleet.live:
            remaining = (turn.record.sandbox.ends_at - fleet.clock.now()).total_seconds()
            fleet.deadlines.set(sandbox_id, max(remaining, fleet.settings.pause_retry_seconds))
        raise


async def _settle(turn: Turn, manifest: SnapshotManifest) -> None:
    fleet = turn.fleet
    paused = turn.record.paused(checkpoint_of(manifest))
    await fleet.book.save(paused)
    # From here on the snapshot is the sandbox. It is shown as paused when nothing of the machine is left that
    # somebody who resumes it would run into.
    await end_machine(fleet, turn.record)
    fleet.book.put(paused)
    await retirement.retire(fleet, turn.sandbox_id, keep=manifest.snapshot_id)


async def end_machine(fleet: Fleet, record: SandboxRecord) -> None:
    """End what runs of a sandbox whose snapshot is durable, and give back what it held on this node."""
    fleet.cut(record.id)
    live = fleet.live.pop(record.id, None)
    if live is not None:
        await live.end()
    fleet.admission.leave(record.id)
    await retirement.release(fleet, record.id)
