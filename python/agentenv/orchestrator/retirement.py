"""Gives up what a sandbox keeps in the repository: hidden snapshots that nothing needs any more, and its leases.

Invariant: nothing here stops a verb. What could not be given up is logged; of a sandbox that is gone the record stays
until it could.
"""

from agentenv.base import log
from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId, SnapshotId
from agentenv.orchestrator.fleet import Fleet
from agentenv.snapshots.base import SnapshotKind, SnapshotQuery
from agentenv.snapshots.errors import SnapshotNotFound

_log = log.get("orchestrator")


async def hidden_snapshots(fleet: Fleet, sandbox_id: SandboxId) -> list[SnapshotId]:
    """Return the snapshots that belong to a sandbox alone. Raises what the repository raises."""
    found: list[SnapshotId] = []
    after = None
    while True:
        query = SnapshotQuery(kind=SnapshotKind.PAUSE, sandbox_id=sandbox_id)
        page = await fleet.repository.list(query, after=after)
        found += [summary.snapshot_id for summary in page.snapshots]
        after = page.following
        if after is None:
            return found


async def retire(fleet: Fleet, sandbox_id: SandboxId, *, keep: SnapshotId | None) -> bool:
    """Delete the hidden snapshots of a sandbox except `keep`; return whether all of them are gone."""
    try:
        found = await hidden_snapshots(fleet, sandbox_id)
    except AgentEnvError as error:
        _log.error("snapshots_not_retired", sandbox_id=sandbox_id, reason=error.message)
        return False
    outcomes = [await delete_quietly(fleet, snapshot_id) for snapshot_id in found if snapshot_id != keep]
    return all(outcomes)


async def delete_quietly(fleet: Fleet, snapshot_id: SnapshotId) -> bool:
    """Delete a snapshot, if it is there; return whether it is gone."""
    try:
        await fleet.repository.delete(snapshot_id)
    except SnapshotNotFound:
        return True
    except AgentEnvError as error:
        _log.error("snapshot_not_deleted", snapshot_id=snapshot_id, reason=error.message)
        return False
    return True


async def release(fleet: Fleet, holder: SandboxId) -> bool:
    """Give up what a sandbox that does not run any more keeps; return whether that was possible."""
    try:
        await fleet.repository.release(holder)
    except AgentEnvError as error:
        _log.error("lease_not_released", holder=holder, reason=error.message)
        return False
    return True
