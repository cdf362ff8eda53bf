"""The control plane's JSON: our values to request bodies, answers to our values. Pure."""

from agentenv.base.ids import SandboxId
from agentenv.client.base import (
    ListedSandbox,
    NewSandbox,
    OnTimeout,
    Sandbox,
    SandboxPage,
    SandboxState,
    Snapshot,
)
from agentenv.client.document import Document, parse_object, parse_objects
from agentenv.client.errors import AnswerInvalid
from agentenv.client.text import printable


def creation(new: NewSandbox) -> dict[str, object]:
    """Return the body that creates `new`; what is not set is left to the server."""
    body: dict[str, object] = {
        "templateID": new.template,
        "metadata": new.metadata,
        "envVars": new.environment,
    }
    if new.timeout_seconds is not None:
        body["timeout"] = new.timeout_seconds
    if not new.allow_internet:
        body["allow_internet_access"] = False
    if new.on_timeout is not None:
        body["autoPause"] = new.on_timeout is OnTimeout.PAUSE
    if new.auto_resume:
        body["autoResume"] = {"enabled": True}
    return body


def parse_sandbox(document: Document) -> Sandbox:
    """Return the sandbox that create and connect answer with."""
    return Sandbox(
        sandbox_id=SandboxId(document.text("sandboxID")),
        template_id=document.text("templateID"),
        envd_version=document.text("envdVersion"),
        access_token=document.optional_text("envdAccessToken"),
        alias=document.optional_text("alias"),
        domain=document.optional_text("domain"),
    )


def parse_listed(document: Document) -> ListedSandbox:
    """Return a sandbox as lists and look-ups give it."""
    state = document.text("state")
    if state not in set(SandboxState):
        raise AnswerInvalid(f"the server reports the unknown state {state[:40]!r} for a sandbox")
    return ListedSandbox(
        sandbox_id=SandboxId(document.text("sandboxID")),
        template_id=document.text("templateID"),
        alias=document.optional_text("alias"),
        state=SandboxState(state),
        started_at=document.moment("startedAt"),
        end_at=document.moment("endAt"),
        cpu_count=document.integer("cpuCount"),
        memory_mib=document.integer("memoryMB"),
        disk_size_mib=document.integer("diskSizeMB"),
        envd_version=document.text("envdVersion"),
        metadata=document.texts("metadata"),
    )


def parse_page(content: bytes, next_token: str | None) -> SandboxPage:
    """Return a page of a list."""
    return SandboxPage(tuple(parse_listed(item) for item in parse_objects(content, "sandbox")), next_token)


def parse_child(document: Document) -> Sandbox | str:
    """Return one entry of a fork's answer: the child, or why there is none."""
    sandbox = document.part("sandbox")
    if sandbox is not None:
        return parse_sandbox(sandbox)
    error = document.part("error")
    if error is None:
        raise AnswerInvalid("the server's answer to a fork holds a child that is neither a sandbox nor an error")
    return printable(error.text("message"))


def parse_snapshot(document: Document) -> Snapshot:
    """Return a snapshot; servers of the contract that are not ours tell its id and its names only."""
    return Snapshot(
        snapshot_id=document.text("snapshotID"),
        names=tuple(document.list_of_texts("names")),
        parent_id=document.optional_text("parentID"),
        sandbox_id=document.optional_text("sandboxID"),
        created_at=document.moment("createdAt") if document.optional_text("createdAt") else None,
        memory_mib=document.integer("memoryMB", 0),
        size_bytes=document.integer("sizeBytes", 0),
    )


def says_paused(content: bytes) -> bool:
    """Return whether a conflict is that the sandbox is paused already; a server that does not say means just that."""
    return parse_object(content, "error").optional_text("error_code") in {None, "sandbox_is_paused"}
