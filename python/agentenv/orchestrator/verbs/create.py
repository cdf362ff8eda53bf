"""The verb create: admission, launch, and the record that makes the sandbox ours."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

from agentenv.base import ids, log
from agentenv.base.ids import SandboxId
from agentenv.guest.base import ENVD_VERSION, GuestSetup
from agentenv.images.base import Image
from agentenv.network.base import EgressPolicy
from agentenv.orchestrator import fleet as fleet_module
from agentenv.orchestrator import machine
from agentenv.orchestrator.base import CreateRequest, OnTimeout, Sandbox, SandboxState
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.machine import Outcome, Verb
from agentenv.orchestrator.record import SandboxRecord
from agentenv.runtime.base import LaunchPlan
from agentenv.runtime.live import Live

_log = log.get("orchestrator")


async def create(fleet: Fleet, sandbox_id: SandboxId, request: CreateRequest, digest: str | None) -> SandboxRecord:
    """Make the sandbox `sandbox_id` and return its record once its daemon answers.

    Any error, and cancellation, leaves the node as it was.
    """
    begin = fleet.clock.monotonic()
    image = await fleet.catalogue.resolve(request.template)
    decision = machine.begin(machine.ABSENT, Verb.CREATE)
    assert isinstance(decision, machine.Start)
    sandbox = _new_sandbox(fleet, sandbox_id, request, image, decision.during)
    record = SandboxRecord(sandbox=sandbox, idempotency_key=request.idempotency_key, request_digest=digest)
    fleet.admission.enter(sandbox_id, image.memory_mib)
    outcome = Outcome.ROLLED_BACK
    try:
        fleet.book.add(record)
        live = await _launch(fleet, record, request, image)
        record = await _make_ours(fleet, record, live, request.timeout_seconds)
        outcome = Outcome.DONE
    finally:
        if machine.finish(Verb.CREATE, outcome) is machine.ABSENT:
            fleet.book.remove(sandbox_id)
            fleet.admission.leave(sandbox_id)
        took = fleet.clock.monotonic() - begin
        fleet_module.verb_seconds.labels(verb=Verb.CREATE, outcome=outcome).observe(took)
        _log.info(
            "sandbox_created" if outcome is Outcome.DONE else "sandbox_not_created",
            sandbox_id=sandbox_id,
            template=request.template,
            took_ms=round(took * 1000),
        )
    return record


def _new_sandbox(
    fleet: Fleet, sandbox_id: SandboxId, request: CreateRequest, image: Image, state: SandboxState
) -> Sandbox:
    now = fleet.clock.now()
    return Sandbox(
        id=sandbox_id,
        template_id=image.template_id,
        template_name=image.names[0] if image.names else None,
        state=state,
        started_at=now,
        ends_at=now + timedelta(seconds=request.timeout_seconds),
        vcpus=image.vcpus,
        memory_mib=image.memory_mib,
        disk_mib=image.disk_size_bytes // 2**20,
        metadata=dict(request.metadata),
        envd_version=ENVD_VERSION,
        envd_token=ids.new_token(),
        traffic_token=None if request.allow_public_traffic else ids.new_token(),
        allow_internet=request.allow_internet,
        allow_public_traffic=request.allow_public_traffic,
        mask_request_host=request.mask_request_host,
        on_timeout=OnTimeout.KILL,
        auto_resume=False,
    )


async def _launch(fleet: Fleet, record: SandboxRecord, request: CreateRequest, image: Image) -> Live:
    sandbox = record.sandbox
    plan = LaunchPlan(
        sandbox_id=sandbox.id,
        image=image,
        vcpus=sandbox.vcpus,
        memory_mib=sandbox.memory_mib,
        egress=egress_of(sandbox),
        setup=GuestSetup(
            sandbox_id=sandbox.id,
            template_id=sandbox.template_id,
            access_token=sandbox.envd_token,
            hostname=sandbox.id,
            environment=image.environment | request.environment,
            default_user=image.default_user,
            default_workdir=image.default_workdir,
        ),
    )
    with fleet.admission.waiting() if fleet.starts.locked() else nullcontext():
        await fleet.starts.acquire()
    try:
        return await fleet.launcher.launch(plan)
    finally:
        fleet.starts.release()


async def _make_ours(fleet: Fleet, record: SandboxRecord, live: Live, timeout_seconds: int) -> SandboxRecord:
    """Write the record of a sandbox that runs; from here on a restart of the server keeps it."""
    sandbox_id = record.sandbox.id
    now = fleet.clock.now()
    running = replace(
        record.sandbox,
        state=SandboxState.RUNNING,
        started_at=now,
        ends_at=now + timedelta(seconds=timeout_seconds),
    )
    changes: dict[str, Any] = {"sandbox": running, "handle": live.handle}
    try:
        # Durable first: until it is, the sandbox is still starting for everybody, so no other verb writes about it.
        await fleet.book.save(replace(record, **changes))
        changed = fleet.book.change(record, **changes)
    except BaseException:
        await live.end()
        await fleet.book.erase(sandbox_id)
        raise
    fleet.live[sandbox_id] = live
    fleet.deadlines.set(sandbox_id, timeout_seconds)
    return changed


def egress_of(sandbox: Sandbox) -> EgressPolicy:
    """Return what a sandbox may reach; the contract's absent `allow_internet_access` means yes."""
    return EgressPolicy(allow_internet=sandbox.allow_internet is not False)
