"""The verb rollback: the sandbox becomes again what a snapshot of its own lineage was, in place, under the same id.

The present state is given up knowingly. Invariant: it is given up only after a snapshot of the sandbox's own holds
what it becomes; whatever fails later leaves the sandbox paused there.
"""

from dataclasses import replace

from agentenv.base import aio, ids
from agentenv.orchestrator import retirement, sources
from agentenv.orchestrator.errors import NotOfItsLineage
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.launching import launch_in_turn, make_running, plan_of
from agentenv.orchestrator.manifests import checkpoint_of
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.turns import Turn
from agentenv.orchestrator.verbs.pause import end_machine
from agentenv.runtime.live import Live
from agentenv.snapshots.base import SnapshotKind, SnapshotManifest
from agentenv.snapshots.errors import SnapshotNotFound


async def rollback(turn: Turn, target: SnapshotManifest) -> SandboxRecord:
    """Roll the sandbox of a turn back to `target` and return its record.

    After an error it runs on as if nothing had happened, or, once its machine had to go, it is paused at `target`.
    """
    fleet, sandbox = turn.fleet, turn.record.sandbox
    await _check_lineage(fleet, turn.record, target)
    own = replace(
        target,
        snapshot_id=ids.new_snapshot_id(fleet.clock.now()),
        kind=SnapshotKind.PAUSE,
        names=(),
        sandbox_id=sandbox.id,
        parent_id=target.snapshot_id,
        created_at=fleet.clock.now(),
    )
    with turn.step("prepare"):
        source = await sources.of_snapshot(
            fleet,
            own,
            sandbox.id,
            template_id=sandbox.template_id,
            template_name=sandbox.template_name,
            with_memory=True,
        )
        plan = plan_of(sandbox, source)
        fleet.launcher.check(plan)
        try:
            await fleet.repository.publish(own, {})
            await turn.intend(attempt_id=own.snapshot_id)
        except BaseException:
            await retirement.delete_quietly(fleet, own.snapshot_id)
            raise
    await aio.finish(_give_up_present(turn))
    try:
        with turn.step("launch"):
            live = await launch_in_turn(fleet, plan, is_promised=True)
        record = await make_running(
            fleet, turn.record, live, source, _seconds_left(turn), checkpoint=checkpoint_of(own)
        )
    except BaseException:
        await aio.finish(_lapse(turn, own))
        raise
    await retirement.retire(fleet, sandbox.id, keep=own.snapshot_id)
    return record


async def _check_lineage(fleet: Fleet, record: SandboxRecord, target: SnapshotManifest) -> None:
    if target.sandbox_id == record.id or await _descends(fleet, record, target):
        return
    raise NotOfItsLineage(f"sandbox '{record.id}' does not descend from snapshot '{target.snapshot_id}'")


async def _descends(fleet: Fleet, record: SandboxRecord, target: SnapshotManifest) -> bool:
    if record.basis.parent_id is None:
        return False
    try:
        ancestors = await fleet.repository.lineage(record.basis.parent_id)
    except SnapshotNotFound:
        return False
    return any(ancestor.snapshot_id == target.snapshot_id for ancestor in ancestors)


async def _give_up_present(turn: Turn) -> None:
    fleet = turn.fleet
    fleet.deadlines.clear(turn.sandbox_id)
    fleet.cut(turn.sandbox_id)
    live: Live = fleet.live.pop(turn.sandbox_id)
    with turn.step("end"):
        await live.end()


async def _lapse(turn: Turn, own: SnapshotManifest) -> None:
    fleet = turn.fleet
    seen = fleet.book.get(turn.sandbox_id)
    record = fleet.book.put(seen.paused(checkpoint_of(own)))
    await fleet.book.save_or_log(record)
    await end_machine(fleet, record)


def _seconds_left(turn: Turn) -> int:
    """The sandbox keeps its deadline, but is not woken up only to be put to sleep at once."""
    remaining = (turn.record.sandbox.ends_at - turn.fleet.clock.now()).total_seconds()
    return max(1, round(remaining))
