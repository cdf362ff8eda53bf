"""What pause, snapshot and fork share: intent, capture, publication, and the way back from each of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agentenv.base import aio, ids
from agentenv.base.errors import Conflict
from agentenv.base.ids import SnapshotId
from agentenv.blocks.base import FileLayer
from agentenv.orchestrator import manifests, retirement
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.record import Basis, SandboxRecord
from agentenv.orchestrator.turns import Turn
from agentenv.runtime.base import Captured, CapturePlan
from agentenv.runtime.live import Holdings, Live
from agentenv.snapshots.base import FileRecord, SnapshotKind, SnapshotManifest

_UNDO_SECONDS = 60.0
# A machine that is captured again and again without a pause between: reading a memory of more layers costs more than
# writing all of it once.
_LONGEST_MEMORY_CHAIN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What kind of snapshot is wanted, and how the guest is treated meanwhile; see `runtime.CapturePlan`."""

    kind: SnapshotKind
    names: tuple[str, ...] = ()
    with_memory: bool = True
    needs_guest: bool = False
    stay_stopped: bool = False


Settle = Callable[[SnapshotManifest], Awaitable[None]]


async def take_snapshot(turn: Turn, wish: Wish, settle: Settle) -> SnapshotManifest:
    """Capture the sandbox of a turn and publish it, then `settle` what follows from that.

    An error before `settle` has returned undoes everything: the sandbox runs on, the snapshot does not exist.
    Publishing and settling are not interrupted.
    """
    fleet, record = turn.fleet, turn.record
    if record.boot is None:
        raise Conflict(
            f"sandbox '{record.id}' was started by a program that could not pause; create it anew",
            code="sandbox_cannot_be_captured",
        )
    live = fleet.live[record.id]
    snapshot_id = ids.new_snapshot_id(fleet.clock.now())
    undo = Holdings(record.id, _UNDO_SECONDS)
    try:
        with turn.step("intent"):
            await turn.intend(attempt_id=snapshot_id)
        undo.push("capture directory", lambda: fleet.repository.discard(snapshot_id))
        directory = await fleet.repository.incoming(snapshot_id)
        stands_on = _memory_below(record)
        plan = CapturePlan(
            snapshot_id=snapshot_id,
            into=directory,
            token=record.sandbox.envd_token,
            with_memory=wish.with_memory,
            below=await _local_files(turn, stands_on) if wish.with_memory else None,
            needs_guest=wish.needs_guest,
            stay_stopped=wish.stay_stopped,
        )
        captured = await _capture(turn, live, plan)
        undo.push("half a snapshot", lambda: _unpublish(turn, snapshot_id, captured))
        if wish.stay_stopped:
            undo.push("machine standing still", lambda: fleet.launcher.go_on(live, record.sandbox.envd_token))
        manifest, files = await manifests.describe(
            record,
            captured,
            stands_on=stands_on,
            snapshot_id=snapshot_id,
            kind=wish.kind,
            names=wish.names,
            now=fleet.clock.now(),
            directory=directory,
        )
        await aio.finish(_publish(turn, manifest, files, settle, undo))
    except BaseException:
        await undo.give_back()
        raise
    return manifest


def _memory_below(record: SandboxRecord) -> tuple[FileRecord, ...]:
    layers = record.basis.memory_layers
    return layers if len(layers) < _LONGEST_MEMORY_CHAIN else ()


async def _capture(turn: Turn, live: Live, plan: CapturePlan) -> Captured:
    with turn.step("capture"):
        captured = await turn.fleet.launcher.capture(live, plan)
    if captured.memory is not None:
        turn.steps.note(frozen_ms=round(captured.memory.frozen_ms), memory_bytes=captured.memory.size_bytes)
    turn.steps.note(disk_bytes=captured.layer.size_bytes)
    return captured


async def _local_files(turn: Turn, layers: tuple[FileRecord, ...]) -> tuple[Path, ...] | None:
    """Return layers as local files; None when there are none, so that the capture stands alone."""
    repository = turn.fleet.repository
    paths = []
    for layer in layers:
        source = await repository.layer(layer)
        paths.append(source.path if isinstance(source, FileLayer) else await repository.fetch(layer))
    return tuple(paths) or None


async def _publish(
    turn: Turn, manifest: SnapshotManifest, files: dict[str, Path], settle: Settle, undo: Holdings
) -> None:
    with turn.step("publish"):
        await turn.fleet.repository.publish(manifest, files)
    with turn.step("settle"):
        await settle(manifest)
    undo.let_go()


async def _unpublish(turn: Turn, snapshot_id: SnapshotId, captured: Captured) -> None:
    fleet = turn.fleet
    await retirement.delete_quietly(fleet, snapshot_id)
    if captured.memory is not None:
        # The layer that the machine's memory is now a change of is lost: the next capture writes all of it.
        record = fleet.book.get(turn.sandbox_id)
        fleet.book.change(record, basis=replace(record.basis, memory_layers=()))


def basis_after(basis: Basis, manifest: SnapshotManifest) -> Basis:
    """Return what a machine's disk and memory are changes of once it was captured and runs on."""
    return Basis(
        disk_layers=manifest.disk_layers,
        memory_layers=manifest.memory_layers if manifest.device_state is not None else basis.memory_layers,
        parent_id=manifest.snapshot_id if manifest.kind is SnapshotKind.SNAPSHOT else basis.parent_id,
    )


async def settle_running(fleet: Fleet, record: SandboxRecord, manifest: SnapshotManifest) -> None:
    """Keep the files of a snapshot for the sandbox that runs on from it, and remember that it does."""
    await fleet.repository.lease(record.id, [file.digest for file in manifest.records()])
    await fleet.book.commit(
        record.id,
        lambda seen: seen.at(SandboxState.RUNNING, basis=basis_after(seen.basis, manifest), attempt_id=None),
    )
