"""The part of the control plane that keeps what sandboxes were: snapshots are taken, found and deleted here."""

from collections.abc import AsyncIterator
from urllib.parse import quote

from agentenv.base.ids import SandboxId
from agentenv.client import wire
from agentenv.client.api import ApiClient
from agentenv.client.base import Snapshot
from agentenv.client.document import parse_object, parse_objects

_PAGE_LIMIT = 100
_PAGES_LIMIT = 10_000


class SnapshotsClient:
    """Speaks to one server through its `ApiClient`."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def create(self, sandbox_id: SandboxId, name: str | None, *, with_memory: bool) -> Snapshot:
        """Take a snapshot of a running sandbox, which runs on."""
        body: dict[str, object] = {} if name is None else {"name": name}
        if not with_memory:
            body["memory"] = False
        subject = f"take a snapshot of sandbox {sandbox_id}"
        answer = await self._api.call("POST", f"/sandboxes/{sandbox_id}/snapshots", subject, body=body, statuses={201})
        return wire.parse_snapshot(parse_object(answer.content, "snapshot"))

    async def list_all(self, *, sandbox_id: SandboxId | None, name: str | None) -> AsyncIterator[Snapshot]:
        """Yield snapshots, newest first, page by page."""
        query = {"limit": str(_PAGE_LIMIT)}
        if sandbox_id is not None:
            query["sandboxID"] = sandbox_id
        if name is not None:
            query["name"] = name
        for _ in range(_PAGES_LIMIT):
            answer = await self._api.call("GET", "/snapshots", "list snapshots", query=query, statuses={200})
            for document in parse_objects(answer.content, "snapshot"):
                yield wire.parse_snapshot(document)
            token = answer.headers.get("X-Next-Token")
            if not token or token == query.get("nextToken"):
                return
            query["nextToken"] = token

    async def tree(self, reference: str) -> list[Snapshot]:
        """Return the tree that a snapshot belongs to, parents before children."""
        path = f"/snapshots/{quote(reference, safe='')}/tree"
        answer = await self._api.call("GET", path, f"find snapshot {reference}", statuses={200})
        return [wire.parse_snapshot(document) for document in parse_objects(answer.content, "snapshot")]

    async def delete(self, reference: str) -> bool:
        """Delete a snapshot; False when there was none."""
        path = f"/templates/{quote(reference, safe='')}"
        answer = await self._api.call("DELETE", path, f"delete snapshot {reference}", statuses={204, 404})
        return answer.status == 204
