"""The verb fork: one capture of the parent, which runs on at once, and children that start from it side by side."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from agentenv.base import ids
from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId
from agentenv.orchestrator import retirement, sources
from agentenv.orchestrator.base import ForkedChild, SandboxState
from agentenv.orchestrator.capturing import Wish, settle_running, take_snapshot
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.steps import Steps
from agentenv.orchestrator.turns import Turn, Turns
from agentenv.orchestrator.verbs.create import bring_up
from agentenv.snapshots.base import SnapshotKind, SnapshotManifest

CHILDREN_LIMIT = 16


@dataclass(frozen=True, slots=True)
class Brood:
    """The capture that children start from, the parent as it was then, and the children's ids.

    The capture's files are kept for each child already, so that its snapshot is not needed any more.
    """

    manifest: SnapshotManifest
    parent: SandboxRecord
    children: tuple[SandboxId, ...]


async def capture_parent(turn: Turn, count: int) -> Brood:
    """Capture the parent, which runs on."""
    children = tuple(ids.new_sandbox_id() for _ in range(count))

    async def settle(manifest: SnapshotManifest) -> None:
        digests = [file.digest for file in manifest.records()]
        for child in children:
            await turn.fleet.repository.lease(child, digests)
        await settle_running(turn.fleet, turn.record, manifest)

    try:
        manifest = await take_snapshot(turn, Wish(kind=SnapshotKind.PAUSE), settle)
    except BaseException:
        for child in children:
            await retirement.release(turn.fleet, child)
        raise
    return Brood(manifest, turn.record, children)


async def start_children(turns: Turns, brood: Brood, timeout_seconds: int) -> list[ForkedChild]:
    """Start the children; each succeeds or fails alone."""
    fleet = turns.fleet

    async def one(child: SandboxId) -> ForkedChild:
        try:
            record = await turns.create(child, lambda steps: _start_child(fleet, brood, child, timeout_seconds, steps))
            return ForkedChild(sandbox=record.sandbox)
        except AgentEnvError as error:
            await retirement.release(fleet, child)
            return ForkedChild(error=error)

    outcomes = await asyncio.gather(*(one(child) for child in brood.children))
    await retirement.delete_quietly(fleet, brood.manifest.snapshot_id)
    return outcomes


async def _start_child(
    fleet: Fleet, brood: Brood, child: SandboxId, timeout_seconds: int, steps: Steps
) -> SandboxRecord:
    parent = brood.parent.sandbox
    steps.note(parent_id=parent.id)
    source = await sources.of_snapshot(
        fleet,
        brood.manifest,
        child,
        template_id=parent.template_id,
        template_name=parent.template_name,
        with_memory=True,
    )
    now = fleet.clock.now()
    sandbox = replace(
        parent,
        id=child,
        state=SandboxState.STARTING,
        started_at=now,
        ends_at=now + timedelta(seconds=timeout_seconds),
        envd_token=ids.new_token(),
        traffic_token=None if parent.allow_public_traffic else ids.new_token(),
    )
    record = SandboxRecord(sandbox=sandbox, timeout_seconds=timeout_seconds)
    return await bring_up(fleet, record, source, steps, is_promised=True)
