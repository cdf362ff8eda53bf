"""The control plane's JSON: our values to request bodies, answers to our values. Pure."""

from agentenv.base.ids import SandboxId
from agentenv.client.base import ListedSandbox, NewSandbox, Sandbox, SandboxPage, SandboxState
from agentenv.client.document import Document, parse_objects
from agentenv.client.errors import AnswerInvalid


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
