"""Sandboxes and templates as the contract shows them. Pure."""

from datetime import UTC, datetime

from agentenv.guest.base import ENVD_VERSION, GuestMetrics
from agentenv.orchestrator.base import Sandbox, SandboxState, Template

View = dict[str, object]

_SHOWN_AS_PAUSED = frozenset({SandboxState.PAUSING, SandboxState.PAUSED})


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
        "state": "paused" if sandbox.state in _SHOWN_AS_PAUSED else "running",
        "envdVersion": sandbox.envd_version,
        "metadata": sandbox.metadata,
    }
    if sandbox.template_name is not None:
        view["alias"] = sandbox.template_name
    return view


def show_detail(sandbox: Sandbox, domain: str | None) -> View:
    """Return the `SandboxDetail` of get."""
    network: View = {"allowPublicTraffic": sandbox.allow_public_traffic}
    if sandbox.mask_request_host is not None:
        network["maskRequestHost"] = sandbox.mask_request_host
    return show_listed(sandbox) | {
        "envdAccessToken": sandbox.envd_token,
        "allowInternetAccess": sandbox.allow_internet,
        "domain": domain,
        "network": network,
        "lifecycle": {"autoResume": sandbox.auto_resume, "onTimeout": sandbox.on_timeout.value},
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
