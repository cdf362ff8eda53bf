"""What a start does with the sandboxes of an earlier process: adopt what runs, finish or undo what was interrupted,
keep what is paused, and collect the rest.
"""

from agentenv.base import aio, log
from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId, SnapshotId
from agentenv.orchestrator import retirement
from agentenv.orchestrator.base import PauseFacts, SandboxState
from agentenv.orchestrator.capturing import basis_after
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.launching import egress_of, show_running
from agentenv.orchestrator.manifests import checkpoint_of
from agentenv.orchestrator.record import Basis, Checkpoint, SandboxRecord
from agentenv.runtime.base import AdoptPlan
from agentenv.snapshots.base import FileRecord, SnapshotManifest
from agentenv.snapshots.errors import SnapshotDamaged, SnapshotNotFound

_log = log.get("orchestrator")
_AT_ONCE = 16
# States on disk in which the machine that the record names is meant to go on.
_MACHINE_GOES_ON = frozenset(
    {SandboxState.RUNNING, SandboxState.PAUSING, SandboxState.SNAPSHOTTING, SandboxState.FORKING}
)


def runs_still(record: SandboxRecord) -> bool:
    """Return whether the machine of a record is there; whether its guest is well is found out later."""
    return record.state in _MACHINE_GOES_ON and record.handle is not None and record.handle.machine.process.is_alive()


def kept_slots(records: list[SandboxRecord]) -> frozenset[int]:
    """Return the network slots that must survive the clean-up before adoption."""
    return frozenset(record.handle.slot_index for record in records if record.handle and runs_still(record))


async def recover(fleet: Fleet, records: list[SandboxRecord]) -> None:
    """Bring the book, the live sandboxes, the repository and this machine to one state, and say what was done."""
    failed = await aio.for_each(records, lambda record: _recover(fleet, record), at_once=_AT_ONCE)
    for record, error in failed:
        _log.error("recovery_failed", sandbox_id=record.id, reason=str(error))
    unsettled = [record for record, _ in failed]
    keep = frozenset(fleet.live) | frozenset(record.id for record in unsettled)
    await _settle_repository(fleet, keep, unsettled)
    for what in await fleet.launcher.collect(keep):
        _log.warning("leftover_removed", what=what)


async def _settle_repository(fleet: Fleet, holders: frozenset[SandboxId], unsettled: list[SandboxRecord]) -> None:
    """Give up what an earlier process kept or had under way and no sandbox needs any more."""
    captures = [record.attempt_id for record in unsettled if record.attempt_id is not None]
    try:
        await fleet.repository.settle(holders, captures)
    except AgentEnvError as error:
        _log.error("repository_not_settled", reason=error.message)


async def _recover(fleet: Fleet, record: SandboxRecord) -> None:
    match record.state:
        case SandboxState.RUNNING:
            await _go_on_or_lapse(fleet, record)
        case SandboxState.PAUSED:
            fleet.book.add(record)
            await _tidy(fleet, record)
        case SandboxState.PAUSING:
            await _after_pause(fleet, record)
        case SandboxState.SNAPSHOTTING | SandboxState.FORKING:
            await _after_capture(fleet, record)
        case SandboxState.ROLLING_BACK:
            await _after_rollback(fleet, record)
        case SandboxState.STOPPING | SandboxState.STARTING | SandboxState.RESUMING:
            await _forget(fleet, record, "its deletion was interrupted")


async def _after_pause(fleet: Fleet, record: SandboxRecord) -> None:
    manifest = await _find(fleet, record.attempt_id)
    if manifest is None:
        await _undo_capture(fleet, record)
        return
    _end_process(record)
    await _put_to_sleep(fleet, record, checkpoint_of(manifest), "its pause was finished")


async def _after_capture(fleet: Fleet, record: SandboxRecord) -> None:
    manifest = await _find(fleet, record.attempt_id)
    if manifest is None:
        await _undo_capture(fleet, record)
        return
    if record.state is SandboxState.FORKING:
        await retirement.delete_quietly(fleet, manifest.snapshot_id)
        await fleet.repository.discard(manifest.snapshot_id)
    await fleet.repository.lease(record.id, [file.digest for file in manifest.records()])
    finished = record.at(SandboxState.RUNNING, basis=basis_after(record.basis, manifest), attempt_id=None)
    await _go_on_or_lapse(fleet, finished, may_stand_still=True)


async def _undo_capture(fleet: Fleet, record: SandboxRecord) -> None:
    if record.attempt_id is not None:
        await fleet.repository.discard(record.attempt_id)
    # The machine may have been captured already, and what it is a change of now is lost: the next one writes all.
    basis = Basis(disk_layers=record.basis.disk_layers, parent_id=record.basis.parent_id)
    undone = record.at(SandboxState.RUNNING, basis=basis, attempt_id=None)
    await _go_on_or_lapse(fleet, undone, may_stand_still=True)


async def _after_rollback(fleet: Fleet, record: SandboxRecord) -> None:
    """The present was to be given up and may be half gone: what it was to become is there, so it becomes that."""
    _end_process(record)
    manifest = await _find(fleet, record.attempt_id)
    if manifest is None and record.attempt_id is not None:
        checkpoint = Checkpoint(record.attempt_id, PauseFacts(with_memory=True, guest_answered=True))
    else:
        assert manifest is not None, "a rollback names its snapshot"
        checkpoint = checkpoint_of(manifest)
    await _put_to_sleep(fleet, record, checkpoint, "its rollback was interrupted")


async def _go_on_or_lapse(fleet: Fleet, record: SandboxRecord, *, may_stand_still: bool = False) -> None:
    if await _adopt(fleet, record, may_stand_still=may_stand_still):
        await _tidy(fleet, record)
    elif record.checkpoint is not None:
        await _put_to_sleep(fleet, record, record.checkpoint, "its machine ended while no server ran")
    else:
        await _forget(fleet, record, "its machine ended while no server ran")


async def _adopt(fleet: Fleet, record: SandboxRecord, *, may_stand_still: bool) -> bool:
    if not runs_still(record):
        return False
    sandbox = record.sandbox
    assert record.handle is not None
    plan = AdoptPlan(
        sandbox_id=sandbox.id,
        egress=egress_of(sandbox),
        handle=record.handle,
        token=sandbox.envd_token if may_stand_still else None,
    )
    live = await fleet.launcher.adopt(plan)
    if live is None:
        return False
    await _lease_again(fleet, record)
    fleet.book.add(record)
    if may_stand_still:
        await fleet.book.save_or_log(record)
    fleet.admission.readmit(sandbox.id, sandbox.memory_mib)
    remaining = (sandbox.ends_at - fleet.clock.now()).total_seconds()
    show_running(fleet, sandbox.id, live, max(remaining, 0.0))
    _log.info("sandbox_adopted", sandbox_id=sandbox.id)
    return True


async def _lease_again(fleet: Fleet, record: SandboxRecord) -> None:
    layers = (*record.basis.disk_layers, *record.basis.memory_layers)
    digests = [layer.digest for layer in layers if isinstance(layer, FileRecord)]
    try:
        if digests:
            await fleet.repository.lease(record.id, digests)
    except AgentEnvError as error:
        # It was leased before, and the ledger of this node remembers that.
        _log.error("lease_not_renewed", sandbox_id=record.id, reason=error.message)


async def _put_to_sleep(fleet: Fleet, record: SandboxRecord, checkpoint: Checkpoint, reason: str) -> None:
    paused = record.paused(checkpoint)
    fleet.book.add(paused)
    await fleet.book.save_or_log(paused)
    await retirement.release(fleet, record.id)
    await _tidy(fleet, paused)
    _log.warning("sandbox_paused_at_start", sandbox_id=record.id, reason=reason)


async def _forget(fleet: Fleet, record: SandboxRecord, reason: str) -> None:
    _end_process(record)
    is_gone = await retirement.retire(fleet, record.id, keep=None)
    if await retirement.release(fleet, record.id) and is_gone:
        await fleet.book.erase(record.id)
    _log.warning("sandbox_lost", sandbox_id=record.id, reason=reason)


async def _tidy(fleet: Fleet, record: SandboxRecord) -> None:
    keep = None if record.checkpoint is None else record.checkpoint.snapshot_id
    await retirement.retire(fleet, record.id, keep=keep)


def _end_process(record: SandboxRecord) -> None:
    if record.handle is not None:
        record.handle.machine.process.kill()


async def _find(fleet: Fleet, snapshot_id: SnapshotId | None) -> SnapshotManifest | None:
    if snapshot_id is None:
        return None
    try:
        return await fleet.repository.get(snapshot_id)
    except (SnapshotNotFound, SnapshotDamaged):
        return None
    except AgentEnvError as error:
        # Neither yes nor no: the record is left as it is, for a start at which the repository answers.
        _log.error("repository_not_asked", snapshot_id=snapshot_id, reason=error.message)
        raise
