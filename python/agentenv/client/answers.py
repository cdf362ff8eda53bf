"""Turns answers that report an error into our errors: one table per protocol. Does no I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from agentenv.base.errors import AgentEnvError
from agentenv.client.document import Document
from agentenv.client.errors import (
    AccessRefused,
    AnswerInvalid,
    CommandTimedOut,
    LimitReached,
    ProcessNotFound,
    RequestRefused,
    SandboxGone,
    SandboxNotFound,
    ServerFailed,
    StateConflict,
)
from agentenv.client.retry import retry_after_seconds
from agentenv.client.text import printable

_BY_STATUS: dict[int, type[AgentEnvError]] = {
    401: AccessRefused,
    403: AccessRefused,
    404: SandboxNotFound,
    409: StateConflict,
    429: LimitReached,
}
# Connect's codes (e2b-contract 4.4); one that is not here is treated as a failure of the daemon.
_BY_CONNECT_CODE: dict[str, type[AgentEnvError]] = {
    "invalid_argument": RequestRefused,
    "failed_precondition": RequestRefused,
    "out_of_range": RequestRefused,
    "unimplemented": RequestRefused,
    "unauthenticated": AccessRefused,
    "permission_denied": AccessRefused,
    "not_found": ProcessNotFound,
    "already_exists": StateConflict,
    "aborted": StateConflict,
    "resource_exhausted": LimitReached,
    "deadline_exceeded": CommandTimedOut,
}


# What a daemon answers to input for a process that has closed it (e2b-contract 4.5).
INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read to its end."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def api_error(answer: Answer, subject: str) -> AgentEnvError:
    """Return the error that an answer of the control plane stands for; `subject` says what was asked for."""
    stated = _stated_message(answer)
    if 300 <= answer.status < 400:
        target = printable(answer.headers.get("Location", "somewhere else"))
        return AnswerInvalid(f"the server redirects to {target}; use the address it really answers at")
    if answer.status < 300:
        return AnswerInvalid(f"the server answered {answer.status} to {subject}, which the contract does not know")
    error = _BY_STATUS.get(answer.status, ServerFailed if answer.status >= 500 else RequestRefused)
    reason = stated or f"the server answered {answer.status} without saying why"
    if error is LimitReached:
        return _limit_reached(f"cannot {subject}: {reason}", retry_after_seconds(answer.headers))
    return error(f"cannot {subject}: {reason}")


def sandbox_error(answer: Answer, sandbox_id: str) -> AgentEnvError:
    """Return the error that an answer from inside a sandbox, or from the proxy in front of it, stands for."""
    fields = _fields(answer)
    stated = _stated_message(answer)
    code = None if fields is None else fields.fields.get("code")
    if isinstance(code, str):
        return connect_error(code, stated)
    if answer.status == 502 and "was not found" in (stated or ""):
        return SandboxGone(f"sandbox {sandbox_id} was killed, is paused, or reached its end of life")
    if answer.status == 502:
        return ServerFailed(f"the daemon in sandbox {sandbox_id} does not answer: {stated or 'bad gateway'}")
    return api_error(answer, f"reach sandbox {sandbox_id}")


def connect_error(code: str, message: str | None) -> AgentEnvError:
    """Return the error that a code of the Connect protocol stands for; `code` stays with it where it is known."""
    error = _BY_CONNECT_CODE.get(code, ServerFailed)
    shown = printable(message or f"the sandbox refuses: {code}")
    return error(shown, code=code if code == INTERNAL else None)


def _limit_reached(message: str, seconds: int | None) -> LimitReached:
    advice = "" if seconds is None else f"; try again in {seconds} s"
    return LimitReached(message + advice, retry_after_seconds=seconds)


def _stated_message(answer: Answer) -> str | None:
    fields = _fields(answer)
    message = None if fields is None else fields.fields.get("message")
    return printable(message) if isinstance(message, str) and message else None


def _fields(answer: Answer) -> Document | None:
    try:
        value = json.loads(answer.content)
    except (ValueError, RecursionError):
        return None
    return Document(value, "error") if isinstance(value, dict) else None
