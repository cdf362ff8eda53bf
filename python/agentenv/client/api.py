"""The control plane of a server: sandboxes are created, found, prolonged and killed here (e2b-contract 2)."""

import json
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

from agentenv.base.clock import Clock, SystemClock
from agentenv.base.ids import SandboxId
from agentenv.client import wire
from agentenv.client.answers import Answer, api_error
from agentenv.client.base import ListedSandbox, NewSandbox, Sandbox, SandboxFilter, SandboxPage
from agentenv.client.document import parse_object, parse_objects
from agentenv.client.errors import KeyMissing
from agentenv.client.retry import retry_delay
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport, deadline

_PAGE_LIMIT = 100
_PAGES_LIMIT = 10_000


class ApiClient:
    """Speaks to one server. Every call is safe to repeat, so a busy server is asked again within the deadline."""

    def __init__(self, transport: Transport, settings: ClientSettings, clock: Clock | None = None) -> None:
        self._transport = transport
        self._settings = settings
        self._clock = clock or SystemClock()

    async def create(self, new: NewSandbox) -> Sandbox:
        """Start a sandbox and return it when it can be used."""
        subject = f"start a sandbox from {new.template}"
        # The key makes a repeated request return the sandbox that the first one made (e2b-contract 2.2).
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        answer = await self.call(
            "POST", "/v2/sandboxes", subject, body=wire.creation(new), headers=headers, statuses={201}
        )
        return wire.parse_sandbox(parse_object(answer.content, "sandbox"))

    async def connect(
        self, sandbox_id: SandboxId, timeout_seconds: int | None = None, *, with_memory: bool = True
    ) -> Sandbox:
        """Return a sandbox with its token, resumed if it was paused. Its deadline moves only away."""
        body: dict[str, object] = {} if timeout_seconds is None else {"timeout": timeout_seconds}
        if not with_memory:
            body["memory"] = False
        path = f"/v2/sandboxes/{sandbox_id}/connect"
        answer = await self.call("POST", path, f"connect to sandbox {sandbox_id}", body=body, statuses={200, 201})
        return wire.parse_sandbox(parse_object(answer.content, "sandbox"))

    async def pause(self, sandbox_id: SandboxId, *, with_memory: bool = True, needs_guest: bool = False) -> bool:
        """Pause a running sandbox; False when it was paused already."""
        body: dict[str, object] = {}
        if not with_memory:
            body["memory"] = False
        if needs_guest:
            body["requireHealthyGuest"] = True
        subject = f"pause sandbox {sandbox_id}"
        answer = await self.call("POST", f"/sandboxes/{sandbox_id}/pause", subject, body=body, statuses={204, 409})
        if answer.status == 409 and not wire.says_paused(answer.content):
            raise api_error(answer, subject)
        return answer.status == 204

    async def fork(self, sandbox_id: SandboxId, count: int, timeout_seconds: int | None) -> list[Sandbox | str]:
        """Start children of a running sandbox; in the place of one that did not start stands why."""
        body: dict[str, object] = {"count": count}
        if timeout_seconds is not None:
            body["timeout"] = timeout_seconds
        subject = f"fork sandbox {sandbox_id}"
        answer = await self.call("POST", f"/sandboxes/{sandbox_id}/fork", subject, body=body, statuses={201})
        return [wire.parse_child(document) for document in parse_objects(answer.content, "child")]

    async def rollback(self, sandbox_id: SandboxId, reference: str) -> Sandbox:
        """Make a running sandbox again what a snapshot of its lineage was."""
        subject = f"roll sandbox {sandbox_id} back to {reference}"
        path, body = f"/sandboxes/{sandbox_id}/rollback", {"snapshotID": reference}
        answer = await self.call("POST", path, subject, body=body, statuses={200})
        return wire.parse_sandbox(parse_object(answer.content, "sandbox"))

    async def get(self, sandbox_id: SandboxId) -> ListedSandbox:
        """Return what the server knows of a sandbox."""
        answer = await self.call("GET", f"/sandboxes/{sandbox_id}", f"find sandbox {sandbox_id}", statuses={200})
        return wire.parse_listed(parse_object(answer.content, "sandbox"))

    async def list_page(
        self, wanted: SandboxFilter, *, token: str | None = None, limit: int = _PAGE_LIMIT
    ) -> SandboxPage:
        """Return one page of the sandboxes that pass the filter, newest first."""
        query = {"limit": str(limit)}
        if wanted.states:
            query["state"] = ",".join(sorted(wanted.states))
        if wanted.metadata:
            query["metadata"] = encode_metadata(wanted.metadata)
        if token is not None:
            query["nextToken"] = token
        answer = await self.call("GET", "/v2/sandboxes", "list sandboxes", query=query, statuses={200})
        return wire.parse_page(answer.content, answer.headers.get("X-Next-Token") or None)

    async def list_all(self, wanted: SandboxFilter) -> AsyncIterator[ListedSandbox]:
        """Yield all sandboxes that pass the filter, page by page."""
        token = None
        for _ in range(_PAGES_LIMIT):
            page = await self.list_page(wanted, token=token)
            for sandbox in page.sandboxes:
                yield sandbox
            if page.next_token is None or page.next_token == token:
                return
            token = page.next_token

    async def kill(self, sandbox_id: SandboxId) -> bool:
        """End a sandbox for good, running or paused; False when there was none."""
        subject = f"delete sandbox {sandbox_id}"
        answer = await self.call("DELETE", f"/sandboxes/{sandbox_id}", subject, statuses={204, 404})
        return answer.status == 204

    async def set_timeout(self, sandbox_id: SandboxId, seconds: int) -> None:
        """Let a running sandbox end in `seconds` from now, sooner or later than before."""
        path = f"/sandboxes/{sandbox_id}/timeout"
        subject = f"set the timeout of sandbox {sandbox_id}"
        await self.call("POST", path, subject, body={"timeout": seconds}, statuses={204})

    async def keep_alive(self, sandbox_id: SandboxId, seconds: int) -> None:
        """Let a running sandbox live for `seconds` from now at least; never shortens its life."""
        path = f"/sandboxes/{sandbox_id}/refreshes"
        await self.call("POST", path, f"prolong sandbox {sandbox_id}", body={"duration": seconds}, statuses={204})

    async def call(
        self,
        method: str,
        path: str,
        subject: str,
        *,
        statuses: set[int],
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask, and return an answer with one of `statuses`; `subject` says in an error what could not be done."""
        sent_headers = {"X-API-KEY": self._key(), **(headers or {})}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            sent_headers["Content-Type"] = "application/json"
        url = self._settings.api_url + path
        attempt = 0
        async with deadline(self._settings.request_timeout_seconds, subject):
            while True:
                answer = await self._transport.request(method, url, headers=sent_headers, query=query, body=content)
                if answer.status in statuses:
                    return answer
                delay = retry_delay(answer.status, answer.headers, attempt)
                if delay is None:
                    raise api_error(answer, subject)
                await self._clock.sleep(delay * random.uniform(1.0, 1.25))  # noqa: S311 - jitter, not a secret
                attempt += 1

    def _key(self) -> str:
        if self._settings.api_key is None:
            raise KeyMissing(f"no API key is known for {self._settings.api_url}")
        return self._settings.api_key.get_secret_value()


def encode_metadata(metadata: Mapping[str, str]) -> str:
    """Return a metadata filter encoded twice over, as the contract wants it before the query's own encoding (2.4)."""
    pairs = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in metadata.items())
    return quote(pairs, safe="=&")
