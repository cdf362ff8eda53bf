"""Idempotency keys: the same key and request give the same sandbox; anything else under the key is refused."""

import dataclasses
import hashlib
import json
from collections import OrderedDict

from agentenv.base.ids import SandboxId
from agentenv.orchestrator.base import CreateRequest
from agentenv.orchestrator.errors import IdempotencyInProgress, IdempotencyMismatch

_KEPT_KEYS = 10_000


def request_digest(request: CreateRequest) -> str:
    """Return what identifies a request's words, whatever its key."""
    words = dataclasses.asdict(request)
    del words["idempotency_key"]
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


class IdempotencyKeys:
    """The newest keys and what became of them. The oldest are forgotten first."""

    def __init__(self) -> None:
        self._outcomes: OrderedDict[str, tuple[str, SandboxId | None]] = OrderedDict()

    def begin(self, key: str, digest: str) -> SandboxId | None:
        """Return the sandbox that this key made, or None when the caller shall make it now.

        Raises `IdempotencyMismatch` or `IdempotencyInProgress`.
        """
        known = self._outcomes.get(key)
        if known is None:
            self._keep(key, digest, None)
            return None
        if known[0] != digest:
            raise IdempotencyMismatch(f"the idempotency key '{key}' was used for another request")
        if known[1] is None:
            raise IdempotencyInProgress(
                f"the first request with the idempotency key '{key}' is still being worked on", retry_after_seconds=1
            )
        return known[1]

    def finish(self, key: str, digest: str, sandbox_id: SandboxId) -> None:
        """Remember what a key made."""
        self._keep(key, digest, sandbox_id)

    def forget(self, key: str) -> None:
        """The request failed and left nothing: the key may be used again."""
        self._outcomes.pop(key, None)

    def _keep(self, key: str, digest: str, sandbox_id: SandboxId | None) -> None:
        self._outcomes[key] = (digest, sandbox_id)
        self._outcomes.move_to_end(key)
        while len(self._outcomes) > _KEPT_KEYS:
            self._outcomes.popitem(last=False)
