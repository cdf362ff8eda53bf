"""The verb create, also for children of a fork: admission, launch, and the record that makes the sandbox ours."""

from dataclasses import replace
from datetime import timedelta

from agentenv.base import ids
from agentenv.base.ids import SandboxId
from agentenv.orchestrator import sources
from agentenv.orchestrator.base import CreateRequest, OnTimeout, Sandbox, SandboxState
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.launching import launch_in_turn, make_running, plan_of
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.sources import Source
from agentenv.orchestrator.steps import Steps


async def create(
    fleet: Fleet, sandbox_id: SandboxId, request: CreateRequest, digest: str | None, steps: Steps
) -> SandboxRecord:
    """Make the sandbox `sandbox_id` and return its record once its daemon answers.

    Any error, and cancellation, leaves the node as it was.
    """
    steps.note(template=request.template)
    found = await sources.resolve(fleet, request.template)
    try:
        with steps.step("prepare"):
            source = await sources.prepare(fleet, found, sandbox_id)
        source = replace(source, boot=replace(source.boot, environment=source.boot.environment | request.environment))
        record = SandboxRecord(
            sandbox=_new_sandbox(fleet, sandbox_id, request, source),
            timeout_seconds=request.timeout_seconds,
            idempotency_key=request.idempotency_key,
            request_digest=digest,
        )
        return await bring_up(fleet, record, source, steps)
    except BaseException:
        await fleet.repository.release(sandbox_id)
        raise


async def bring_up(
    fleet: Fleet, record: SandboxRecord, source: Source, steps: Steps, *, is_promised: bool = False
) -> SandboxRecord:
    """Start a sandbox that is new. Any error, and cancellation, leaves nothing of it but what its source holds."""
    sandbox = record.sandbox
    fleet.admission.enter(sandbox.id, sandbox.memory_mib)
    try:
        fleet.book.add(record)
        with steps.step("launch"):
            live = await launch_in_turn(fleet, plan_of(sandbox, source), is_promised=is_promised)
        try:
            with steps.step("record"):
                return await make_running(fleet, record, live, source, record.timeout_seconds)
        except BaseException:
            await fleet.book.erase(sandbox.id)
            raise
    except BaseException:
        fleet.book.remove(sandbox.id)
        fleet.admission.leave(sandbox.id)
        raise


def _new_sandbox(fleet: Fleet, sandbox_id: SandboxId, request: CreateRequest, source: Source) -> Sandbox:
    now = fleet.clock.now()
    pauses = fleet.settings.auto_pause if request.auto_pause is None else request.auto_pause
    return Sandbox(
        id=sandbox_id,
        template_id=source.template_id,
        template_name=source.template_name,
        state=SandboxState.STARTING,
        started_at=now,
        ends_at=now + timedelta(seconds=request.timeout_seconds),
        vcpus=source.vcpus,
        memory_mib=source.memory_mib,
        disk_mib=source.disk_size_bytes // 2**20,
        metadata=dict(request.metadata),
        envd_version=source.envd_version,
        envd_token=ids.new_token(),
        traffic_token=None if request.allow_public_traffic else ids.new_token(),
        allow_internet=request.allow_internet,
        allow_public_traffic=request.allow_public_traffic,
        mask_request_host=request.mask_request_host,
        on_timeout=OnTimeout.PAUSE if pauses else OnTimeout.KILL,
        auto_resume=request.auto_resume,
        auto_pause_memory=request.auto_pause_memory,
    )
