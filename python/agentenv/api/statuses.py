"""The one table from kinds of errors to HTTP, and the shape of every error body."""

from http import HTTPStatus

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.errors import MethodNotAllowed
from agentenv.base.errors import AgentEnvError, Kind

_BY_KIND = {
    Kind.INVALID: HTTPStatus.BAD_REQUEST,
    Kind.UNAUTHORISED: HTTPStatus.UNAUTHORIZED,
    Kind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Kind.CONFLICT: HTTPStatus.CONFLICT,
    Kind.EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    Kind.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Kind.TIMEOUT: HTTPStatus.GATEWAY_TIMEOUT,
    Kind.CORRUPT: HTTPStatus.INTERNAL_SERVER_ERROR,
    Kind.BUG: HTTPStatus.INTERNAL_SERVER_ERROR,
}
# Errors whose status says more than their kind does.
_BY_CODE = {
    "body_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "private_port": HTTPStatus.FORBIDDEN,
    "wake_denied": HTTPStatus.FORBIDDEN,
    "store_full": HTTPStatus.INSUFFICIENT_STORAGE,
    "disk_space_short": HTTPStatus.INSUFFICIENT_STORAGE,
    "idempotency_request_mismatch": HTTPStatus.UNPROCESSABLE_ENTITY,
}
# The words that clients know (e2b-contract 1.9). Of the others only conflicts are told: which one it is, is theirs to
# act on.
_PUBLISHED_CODES = frozenset(
    {
        "sandbox_capacity_unavailable",
        "sandbox_placement_timeout",
        "sandbox_no_compatible_node",
        "sandbox_create_failed",
        "sandbox_create_refused",
        "internal_server_error",
        "secret_limit_reached",
        "idempotency_request_mismatch",
        "idempotency_in_progress",
        "idempotency_outcome_unknown",
        "sandbox_snapshot_guest_agent_unresponsive",
        "snapshot_filesystem_only_disabled",
        "snapshot_filesystem_only_unsupported_node",
    }
)


def status_of(error: AgentEnvError) -> HTTPStatus:
    """Return the HTTP status that says what `error` means."""
    return _BY_CODE.get(error.code, _BY_KIND[error.kind])


def error_headers(error: AgentEnvError) -> dict[str, str]:
    """Return the headers that tell a client whether and when to try again."""
    status = status_of(error)
    if isinstance(error, MethodNotAllowed):
        return {"Allow": ", ".join(error.allowed)}
    if status is HTTPStatus.TOO_MANY_REQUESTS:
        return {"Retry-After": str(error.retry_after_seconds or 1)}
    if status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}:
        if error.retry_after_seconds is None:
            return {"Should-Retry": "false"}
        return {"Should-Retry": "true", "Retry-After": str(error.retry_after_seconds)}
    return {}


def error_answer(error: AgentEnvError) -> web.Response:
    """Return the control plane's answer to an error."""
    status = status_of(error)
    body: dict[str, object] = {"code": int(status), "message": error.message}
    if error.code in _PUBLISHED_CODES or error.kind is Kind.CONFLICT:
        body["error_code"] = error.code
    return json_answer(body, status=status, headers=error_headers(error))
