"""Sandboxes and templates as the contract shows them. Pure."""

from datetime import UTC, datetime

from agentenv.api.statuses import status_of
from agentenv.guest.base import ENVD_VERSION, GuestMetrics
from agentenv.orchestrator.base import PAUSED_STATES, ForkedChild, Sandbox, Template
from agentenv.snapshots.base import SnapshotSummary

View = dict[str, object]


def show_time(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def show_created(sandbox: Sandbox, domain: str | None) -> View:
    """Return the `Sandbox` of create and connect."""
    view: View = {
        "templateID": sandbox.template_id,
        "sandboxID": sandbox.id,
        "clientID": "",
        "envdVersion": sandbox.envd_version,
        "envdAccessToken": sandbox.envd_token,
        "trafficAccessToken": sandbox.traffic_token,
        "domain": domain,
    }
    if sandbox.template_name is not None:
        view["alias"] = sandbox.template_name
    return view


def show_listed(sandbox: Sandbox) -> View:
    """Return the `ListedSandbox` of both lists."""
    view: View = {
        "templateID": sandbox.template_id,
        "sandboxID": sandbox.id,
        "clientID": "",
        "startedAt": show_time(sandbox.started_at),
        "endAt": show_time(sandbox.ends_at),
        "cpuCount": sandbox.vcpus,
        "memoryMB": sandbox.memory_mib,
        "diskSizeMB": sandbox.disk_mib,
        "state": "paused" if sandbox.state in PAUSED_STATES else "running",
        "envdVersion": sandbox.envd_version,
        "metadata": sandbox.metadata,
    }
    if sandbox.template_name is not None:
        view["alias"] = sandbox.template_name
    if sandbox.pause is not None and not sandbox.pause.guest_answered:
        view["envdUnresponsiveAtPause"] = True
    return view


def show_detail(sandbox: Sandbox, domain: str | None) -> View:
    """Return the `SandboxDetail` of get."""
    network: View = {"allowPublicTraffic": sandbox.allow_public_traffic}
    if sandbox.mask_request_host is not None:
        network["maskRequestHost"] = sandbox.mask_request_host
    view = show_listed(sandbox) | {
        "envdAccessToken": sandbox.envd_token,
        "allowInternetAccess": sandbox.allow_internet,
        "domain": domain,
        "network": network,
        "lifecycle": {"autoResume": sandbox.auto_resume, "onTimeout": sandbox.on_timeout.value},
    }
    if sandbox.pause is not None:
        view["pauseMode"] = "full" if sandbox.pause.with_memory else "filesystem"
    return view


def show_child(child: ForkedChild, domain: str | None) -> View:
    """Return one entry of a fork's answer."""
    if child.sandbox is not None:
        return {"sandbox": show_created(child.sandbox, domain)}
    assert child.error is not None, "a child has a sandbox or an error"
    return {"error": {"code": int(status_of(child.error)), "message": child.error.message}}


def show_snapshot(summary: SnapshotSummary) -> View:
    """Return the contract's `SnapshotInfo`, and what is ours to add: where it comes from and how large it is."""
    return {
        "snapshotID": summary.snapshot_id,
        "names": [name.removesuffix(":default") for name in summary.names],
        "parentID": summary.parent_id,
        "sandboxID": summary.sandbox_id,
        "templateID": summary.template_id,
        "createdAt": show_time(summary.created_at),
        "cpuCount": summary.vcpus,
        "memoryMB": summary.memory_mib,
        "diskSizeMB": summary.disk_size_bytes // 2**20,
        "memory": summary.has_memory,
        "sizeBytes": summary.own_bytes,
    }


def show_reading(reading: GuestMetrics) -> View:
    """Return the `SandboxMetric` of one reading."""
    return {
        "timestamp": show_time(datetime.fromtimestamp(reading.timestamp, UTC)),
        "timestampUnix": reading.timestamp,
        "cpuCount": reading.cpu_count,
        "cpuUsedPct": reading.cpu_used_percent,
        "memUsed": reading.memory_used,
        "memTotal": reading.memory_total,
        "memCache": reading.memory_cache,
        "diskUsed": reading.disk_used,
        "diskTotal": reading.disk_total,
    }


def show_template(template: Template) -> View:
    """Return what we know of a template; build history and authorship are not recorded."""
    return {
        "templateID": template.template_id,
        "cpuCount": template.vcpus,
        "memoryMB": template.memory_mib,
        "diskSizeMB": template.disk_mib,
        "public": True,
        "aliases": list(template.names),
        "names": list(template.names),
        "createdBy": None,
        "envdVersion": ENVD_VERSION,
        "buildStatus": "ready",
    }
