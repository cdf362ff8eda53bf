"""From a record and a source to a running sandbox: in turn, within the limits, and durable before anybody sees it."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

from agentenv.base.ids import SandboxId
from agentenv.guest.base import GuestSetup
from agentenv.network.base import EgressPolicy
from agentenv.orchestrator.base import Sandbox, SandboxState
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.record import SandboxRecord
from agentenv.orchestrator.sources import Source
from agentenv.runtime.base import LaunchPlan
from agentenv.runtime.live import Live


def plan_of(sandbox: Sandbox, source: Source) -> LaunchPlan:
    """Return how `runtime` is to start a sandbox."""
    boot = source.boot
    return LaunchPlan(
        sandbox_id=sandbox.id,
        origin=source.origin,
        vcpus=sandbox.vcpus,
        memory_mib=sandbox.memory_mib,
        egress=egress_of(sandbox),
        setup=GuestSetup(
            sandbox_id=sandbox.id,
            template_id=sandbox.template_id,
            access_token=sandbox.envd_token,
            hostname=sandbox.id,
            environment=boot.environment,
            default_user=boot.default_user,
            default_workdir=boot.default_workdir,
        ),
    )


def egress_of(sandbox: Sandbox) -> EgressPolicy:
    """Return what a sandbox may reach; the contract's absent `allow_internet_access` means yes."""
    return EgressPolicy(allow_internet=sandbox.allow_internet is not False)


async def launch_in_turn(fleet: Fleet, plan: LaunchPlan, *, is_promised: bool = False) -> Live:
    """Launch once it is this plan's turn. Raises `AdmissionRefused` when too many wait already.

    One that is promised waits however many there are: the work that it belongs to has been accepted.
    """
    with fleet.admission.waiting() if fleet.starts.locked() and not is_promised else nullcontext():
        await fleet.starts.acquire()
    try:
        return await fleet.launcher.launch(plan)
    finally:
        fleet.starts.release()


async def make_running(
    fleet: Fleet, record: SandboxRecord, live: Live, source: Source, timeout_seconds: int, **changes: Any
) -> SandboxRecord:
    """Make a launched sandbox ours: from here on a restart of the server keeps it. Ends it when that fails.

    `record` is in a state in which no other verb changes it; `changes` are of it.
    """
    now = fleet.clock.now()
    sandbox = replace(record.sandbox, pause=None, started_at=now, ends_at=now + timedelta(seconds=timeout_seconds))
    try:
        running = await fleet.book.commit(
            record.id,
            lambda seen: seen.at(
                SandboxState.RUNNING,
                sandbox=sandbox,
                timeout_seconds=timeout_seconds,
                handle=live.handle,
                boot=source.boot,
                basis=source.basis,
                generation=record.generation + 1,
                attempt_id=None,
                **changes,
            ),
        )
    except BaseException:
        await live.end()
        raise
    show_running(fleet, running.id, live, timeout_seconds)
    return running


def show_running(fleet: Fleet, sandbox_id: SandboxId, live: Live, seconds_left: float) -> None:
    """Let traffic and deadlines know of a sandbox that runs, and watch its machine."""
    fleet.live[sandbox_id] = live
    fleet.deadlines.set(sandbox_id, seconds_left)
    fleet.watch(live)
