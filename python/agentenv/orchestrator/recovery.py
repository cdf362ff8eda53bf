"""What a start does with the sandboxes of an earlier process: adopt what runs, end what is over, collect the rest."""

from agentenv.base import aio, log
from agentenv.base.ids import SandboxId
from agentenv.orchestrator.base import SandboxState
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.verbs.create import egress_of
from agentenv.runtime.base import AdoptPlan

_log = log.get("orchestrator")
_ADOPTIONS_AT_ONCE = 16


def runs_still(record: SandboxRecord) -> bool:
    """Return whether the machine of a record is there; whether its guest is well is found out later."""
    return (
        record.sandbox.state is SandboxState.RUNNING
        and record.handle is not None
        and record.handle.machine.process.is_alive()
    )


def kept_slots(records: list[SandboxRecord]) -> frozenset[int]:
    """Return the network slots that must survive the clean-up before adoption."""
    return frozenset(record.handle.slot_index for record in records if record.handle and runs_still(record))


async def recover(fleet: Fleet, records: list[SandboxRecord]) -> list[SandboxId]:
    """Adopt the sandboxes that still run, forget the others, and return the ids of the adopted."""
    adopted: list[SandboxId] = []

    async def one(record: SandboxRecord) -> None:
        if await _adopt(fleet, record):
            adopted.append(record.sandbox.id)
        else:
            await fleet.book.erase(record.sandbox.id)
            _log.warning("sandbox_lost", sandbox_id=record.sandbox.id, reason="its machine ended while no server ran")

    failed = await aio.for_each(records, one, at_once=_ADOPTIONS_AT_ONCE)
    for record, error in failed:
        _log.error("recovery_failed", sandbox_id=record.sandbox.id, reason=str(error))
    keep = frozenset(adopted) | frozenset(record.sandbox.id for record, _ in failed)
    for what in await fleet.launcher.collect(keep):
        _log.warning("leftover_removed", what=what)
    return adopted


async def _adopt(fleet: Fleet, record: SandboxRecord) -> bool:
    if not runs_still(record):
        return False
    sandbox = record.sandbox
    assert record.handle is not None
    live = await fleet.launcher.adopt(AdoptPlan(sandbox_id=sandbox.id, egress=egress_of(sandbox), handle=record.handle))
    if live is None:
        return False
    fleet.book.add(record)
    fleet.live[sandbox.id] = live
    fleet.admission.readmit(sandbox.id, sandbox.memory_mib)
    remaining = (sandbox.ends_at - fleet.clock.now()).total_seconds()
    fleet.deadlines.set(sandbox.id, max(remaining, 0.0))
    _log.info("sandbox_adopted", sandbox_id=sandbox.id)
    return True
