"""The table of the control plane."""

from agentenv.api.endpoints.health import get_health
from agentenv.api.endpoints.metrics import get_metrics
from agentenv.api.endpoints.sandbox_connect import connect_sandbox, connect_sandbox_v1, resume_sandbox
from agentenv.api.endpoints.sandbox_create import create_sandbox, create_sandbox_v1
from agentenv.api.endpoints.sandbox_delete import delete_sandbox
from agentenv.api.endpoints.sandbox_fork import fork_sandbox
from agentenv.api.endpoints.sandbox_get import get_sandbox
from agentenv.api.endpoints.sandbox_list import list_running_sandboxes, list_sandboxes
from agentenv.api.endpoints.sandbox_metrics import get_sandbox_metrics
from agentenv.api.endpoints.sandbox_pause import pause_sandbox
from agentenv.api.endpoints.sandbox_refresh import refresh_sandbox
from agentenv.api.endpoints.sandbox_rollback import rollback_sandbox
from agentenv.api.endpoints.sandbox_timeout import set_sandbox_timeout
from agentenv.api.endpoints.snapshot_create import create_snapshot
from agentenv.api.endpoints.snapshot_get import get_snapshot, get_snapshot_tree
from agentenv.api.endpoints.snapshot_list import list_sandbox_snapshots, list_snapshots
from agentenv.api.endpoints.template_alias import get_template_alias
from agentenv.api.endpoints.template_delete import delete_template
from agentenv.api.endpoints.template_list import list_templates
from agentenv.api.router import Route
from agentenv.api.settings import ApiSettings


def make_routes(settings: ApiSettings) -> tuple[Route, ...]:
    """Return all routes of the control plane."""
    return (
        Route("GET", "/health", "health", get_health, needs_key=False, is_quiet=True),
        Route("GET", "/metrics", "metrics", get_metrics, needs_key=settings.metrics_need_key, is_quiet=True),
        Route("POST", "/sandboxes", "sandbox_create_v1", create_sandbox_v1),
        Route("POST", "/v2/sandboxes", "sandbox_create", create_sandbox),
        Route("GET", "/sandboxes", "sandbox_list_v1", list_running_sandboxes),
        Route("GET", "/v2/sandboxes", "sandbox_list", list_sandboxes),
        Route("GET", "/sandboxes/{sandboxID}", "sandbox_get", get_sandbox),
        Route("DELETE", "/sandboxes/{sandboxID}", "sandbox_delete", delete_sandbox),
        Route("POST", "/sandboxes/{sandboxID}/connect", "sandbox_connect_v1", connect_sandbox_v1),
        Route("POST", "/v2/sandboxes/{sandboxID}/connect", "sandbox_connect", connect_sandbox),
        Route("POST", "/sandboxes/{sandboxID}/pause", "sandbox_pause", pause_sandbox),
        Route("POST", "/sandboxes/{sandboxID}/resume", "sandbox_resume", resume_sandbox),
        Route("POST", "/sandboxes/{sandboxID}/fork", "sandbox_fork", fork_sandbox),
        Route("POST", "/sandboxes/{sandboxID}/rollback", "sandbox_rollback", rollback_sandbox),
        Route("POST", "/sandboxes/{sandboxID}/snapshots", "snapshot_create", create_snapshot),
        Route("GET", "/sandboxes/{sandboxID}/snapshots", "sandbox_snapshots", list_sandbox_snapshots),
        Route("POST", "/sandboxes/{sandboxID}/timeout", "sandbox_timeout", set_sandbox_timeout),
        Route("POST", "/sandboxes/{sandboxID}/refreshes", "sandbox_refresh", refresh_sandbox),
        Route("GET", "/sandboxes/{sandboxID}/metrics", "sandbox_metrics", get_sandbox_metrics),
        Route("GET", "/snapshots", "snapshot_list", list_snapshots),
        Route("GET", "/snapshots/{snapshotID}", "snapshot_get", get_snapshot),
        Route("GET", "/snapshots/{snapshotID}/tree", "snapshot_tree", get_snapshot_tree),
        Route("DELETE", "/templates/{templateID}", "template_delete", delete_template),
        Route("GET", "/templates", "template_list", list_templates),
        Route("GET", "/templates/aliases/{alias}", "template_alias", get_template_alias),
    )
