"""The bodies of control-plane requests, checked strictly: a string is no number, and `"true"` is no boolean.

Fields unknown to the contract are ignored and named to the client; contract fields that we cannot honour are refused.
"""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from agentenv.api.errors import RequestInvalid

_SHOWN_PROBLEMS = 3
_SHOWN_NAME_CHARACTERS = 64


class RequestModel(BaseModel):
    """A request body, or a part of one."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


_Model = TypeVar("_Model", bound=RequestModel)

MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=256)]
MetadataValue = Annotated[str, StringConstraints(max_length=8192)]
# A name holds no `=`, and neither part a NUL: the guest could not put such a pair into an environment.
EnvironmentKey = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^=\x00]+$")]
EnvironmentValue = Annotated[str, StringConstraints(max_length=131071, pattern=r"^[^\x00]*$")]
# What fits 32 bits; how much of it is granted is the orchestrator's decision.
Seconds = Annotated[int, Field(ge=0, lt=2**31)]
HostName = Annotated[str, StringConstraints(max_length=255, pattern=r"^[A-Za-z0-9.:_\[\]${}-]+$")]


class AutoResume(RequestModel):
    """Whether traffic wakes a paused sandbox."""

    enabled: bool


class Network(RequestModel):
    """The network of a new sandbox."""

    allowPublicTraffic: bool | None = None  # noqa: N815 - the contract's spelling
    maskRequestHost: HostName | None = None  # noqa: N815
    allowOut: list[str] | None = None  # noqa: N815
    denyOut: list[str] | None = None  # noqa: N815
    dnsServers: list[str] | None = None  # noqa: N815
    httpsPorts: list[int] | None = None  # noqa: N815
    egressProxy: JsonValue = None  # noqa: N815
    rules: JsonValue = None


class NewSandbox(RequestModel):
    """What POST /sandboxes and POST /v2/sandboxes take."""

    templateID: Annotated[str, StringConstraints(min_length=1, max_length=512)]  # noqa: N815
    timeout: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    autoPause: bool | None = None  # noqa: N815
    autoPauseMemory: bool | None = None  # noqa: N815
    autoResume: AutoResume | None = None  # noqa: N815
    secure: bool | None = None
    allow_internet_access: bool | None = None
    network: Network | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=256)] | None = None
    envVars: Annotated[dict[EnvironmentKey, EnvironmentValue], Field(max_length=1024)] | None = None  # noqa: N815
    mcp: dict[str, JsonValue] | None = None
    iam: JsonValue = None
    volumeMounts: list[JsonValue] | None = None  # noqa: N815
    customExtensionParams: dict[str, JsonValue] | None = None  # noqa: N815


class Connect(RequestModel):
    """What both connects take; `timeout` may be absent only in the second generation."""

    timeout: Seconds | None = None
    memory: bool | None = None


class Resume(RequestModel):
    """What POST /sandboxes/{id}/resume takes."""

    timeout: Seconds | None = None
    autoPause: bool | None = None  # noqa: N815 - the contract's spelling
    memory: bool | None = None


class Pause(RequestModel):
    """What POST /sandboxes/{id}/pause takes."""

    memory: bool | None = None
    requireHealthyGuest: bool | None = None  # noqa: N815


class NewSnapshot(RequestModel):
    """What POST /sandboxes/{id}/snapshots takes."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    memory: bool | None = None


class Fork(RequestModel):
    """What POST /sandboxes/{id}/fork takes."""

    timeout: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    count: Annotated[int, Field(ge=1, le=16)] | None = None


class Rollback(RequestModel):
    """What POST /sandboxes/{id}/rollback takes: the id or the name of a snapshot."""

    snapshotID: Annotated[str, StringConstraints(min_length=1, max_length=512)]  # noqa: N815


class Timeout(RequestModel):
    """What POST /sandboxes/{id}/timeout takes."""

    timeout: Seconds


class Refresh(RequestModel):
    """What POST /sandboxes/{id}/refreshes takes."""

    duration: Annotated[int, Field(ge=0, le=3600)] | None = None


def parse_model(model: type[_Model], raw: bytes) -> tuple[_Model, list[str]]:
    """Return the body and the names of fields that nobody knows. Raises `RequestInvalid`."""
    try:
        parsed = model.model_validate_json(raw)
    except ValidationError as error:
        raise RequestInvalid(_explain(error)) from error
    return parsed, _unknown_fields(parsed, "")


def _explain(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    sentences = []
    for problem in problems[:_SHOWN_PROBLEMS]:
        where = ".".join(str(part)[:_SHOWN_NAME_CHARACTERS] for part in problem["loc"])
        sentences.append(f"{where or 'body'}: {problem['msg']}")
    if len(problems) > _SHOWN_PROBLEMS:
        sentences.append(f"and {len(problems) - _SHOWN_PROBLEMS} more")
    return "; ".join(sentences)


def _unknown_fields(part: RequestModel, prefix: str) -> list[str]:
    names = [prefix + name for name in part.model_extra or ()]
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, RequestModel):
            names += _unknown_fields(value, f"{prefix}{name}.")
    return names
