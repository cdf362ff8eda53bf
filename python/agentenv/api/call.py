"""One control-plane request on its way to its endpoint: body, query and path, checked at the edge."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar
from urllib.parse import parse_qsl

from aiohttp import web

from agentenv.api.errors import BodyTooLarge, RequestInvalid
from agentenv.api.models import RequestModel, parse_model
from agentenv.api.settings import ApiSettings
from agentenv.base.ids import SandboxId, parse_sandbox_id
from agentenv.orchestrator.base import Orchestrator
from agentenv.orchestrator.errors import SandboxNotFound

_Model = TypeVar("_Model", bound=RequestModel)
_INTEGER = re.compile(r"-?[0-9]{1,18}")


@dataclass(slots=True)
class Call:
    """A matched request. `ignored` collects the names of fields that we do not know."""

    request: web.BaseRequest
    parameters: dict[str, str]
    orchestrator: Orchestrator
    settings: ApiSettings
    ignored: list[str] = field(default_factory=list)

    @property
    def sandbox_id(self) -> SandboxId:
        """The sandbox that the path names. A name that no sandbox can have is unknown, not malformed."""
        text = self.parameters["sandboxID"]
        sandbox_id = parse_sandbox_id(text)
        if sandbox_id is None:
            raise SandboxNotFound(text[:64])
        return sandbox_id

    @property
    def domain(self) -> str | None:
        """The domain that clients are told to reach sandboxes under."""
        return self.settings.domains[0] if self.settings.domains else None

    async def body(self, model: type[_Model], *, may_be_absent: bool = False) -> _Model:
        """Read the JSON body. Raises `RequestInvalid` or `BodyTooLarge`."""
        raw = await self._read()
        if not raw.strip():
            if not may_be_absent:
                raise RequestInvalid("a JSON body is required")
            raw = b"{}"
        parsed, ignored = parse_model(model, raw)
        self.ignored += ignored
        return parsed

    async def _read(self) -> bytes:
        coding = self.request.headers.get("Content-Encoding", "identity").lower()
        if coding != "identity":
            raise RequestInvalid(f"the content encoding {coding[:32]!r} is not accepted here; send plain JSON")
        limit = self.settings.body_limit_bytes
        body = bytearray()
        try:
            while chunk := await self.request.content.readany():
                body += chunk
                if len(body) > limit:
                    raise BodyTooLarge(f"the body is larger than {limit} bytes")
        except web.RequestPayloadError as error:
            raise RequestInvalid("the body ended early or is malformed") from error
        return bytes(body)

    def query(self) -> dict[str, str]:
        """Return the query's parameters, decoded once. Raises `RequestInvalid` when one is there twice."""
        raw = self.request.raw_path.partition("?")[2]
        try:
            pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=64)
        except ValueError as error:
            raise RequestInvalid("the query is not UTF-8 or has too many parameters") from error
        query: dict[str, str] = {}
        for name, value in pairs:
            if name in query:
                raise RequestInvalid(f"the query parameter {name[:64]!r} may be given only once")
            query[name] = value
        return query


def parse_integer(name: str, text: str) -> int:
    """Return the whole number in a query parameter. Raises `RequestInvalid`."""
    if not text.isascii() or _INTEGER.fullmatch(text) is None:
        raise RequestInvalid(f"{name} must be a whole number")
    return int(text)


def parse_time(name: str, text: str) -> datetime:
    """Return the RFC 3339 time in a query parameter. Raises `RequestInvalid`."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise RequestInvalid(f"{name} must be an RFC 3339 time such as 2026-01-31T12:00:00Z")
    return time
