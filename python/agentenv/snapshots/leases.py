"""Leases: files that live sandboxes read are kept, whichever node collects. Promises nothing before it is flushed,
which is why collection waits for the grace time.
"""

import asyncio
import json
from collections.abc import Callable, Collection

from agentenv.base import log
from agentenv.base.clock import Clock
from agentenv.objects.base import ObjectStore
from agentenv.objects.errors import CellChanged
from agentenv.snapshots.access import Access
from agentenv.snapshots.ledger import Ledger
from agentenv.snapshots.manifest import find_digests

LEASES = "leases"
_PEERS = "peer"
_HEARTBEAT_SECONDS = 600
_log = log.get("snapshots")


class Leases:
    """What this node keeps, remembered here at once and told to the other nodes soon."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        access: Access,
        clock: Clock,
        node: str,
        expiry_seconds: float,
    ) -> None:
        self._store = store
        self._access = access
        self._clock = clock
        self._node = node
        self._expiry_seconds = expiry_seconds
        self._is_told = False
        self._told_at = float("-inf")
        self._telling = asyncio.Lock()

    async def take(self, holder: str, digests: Collection[str]) -> None:
        """Keep files for a holder; survives the death of this process."""
        if digests:
            await self._access.ledger(Ledger.lease, holder, digests)
            self._is_told = False

    async def release(self, holder: str) -> None:
        """Give up what a holder keeps."""
        await self._access.ledger(Ledger.release, (holder,))
        self._is_told = False

    async def release_unless(self, keep: Callable[[str], bool]) -> list[str]:
        """Give up what all holders keep of whom `keep` says no; return them."""
        gone = [holder for holder in await self._access.ledger(Ledger.holders) if not keep(holder)]
        await self._access.ledger(Ledger.release, gone)
        self._is_told = False
        return gone

    async def tell(self) -> None:
        """Let the other nodes know, if anything changed; and now and then that this node lives."""
        async with self._telling:
            if self._is_told and self._clock.monotonic() - self._told_at < _HEARTBEAT_SECONDS:
                return
            self._is_told = True
            try:
                content = json.dumps({"digests": await self._access.ledger(Ledger.leased)}).encode()
                cell = await self._store.read_cell(LEASES, self._node)
                await self._store.write_cell(LEASES, self._node, content, expected=cell.version if cell else None)
            except CellChanged:
                self._is_told = False
                # Only a copy of this node's directory on another host writes under its name.
                _log.error("lease_written_by_another", node=self._node)
            except BaseException:
                self._is_told = False
                raise
            self._told_at = self._clock.monotonic()

    async def own(self) -> frozenset[str]:
        """Return what this node keeps."""
        return frozenset(await self._access.ledger(Ledger.leased))

    async def all(self) -> frozenset[str]:
        """Return what this node keeps, and every other node that has given a sign of life within the expiry."""
        found = await self._store.cells(LEASES)
        # A node lives when its cell changes; its clock need not agree with ours.
        signs = [f"{node} {version}" for node, version in found.items()]
        since = await self._access.ledger(Ledger.mark, _PEERS, signs, self._clock.now().timestamp())
        oldest = self._clock.now().timestamp() - self._expiry_seconds
        kept = set(await self.own())
        for node, version in found.items():
            if node == self._node or since[f"{node} {version}"] < oldest:
                continue
            cell = await self._store.read_cell(LEASES, node)
            kept |= find_digests(cell.content) if cell is not None else frozenset()
        return frozenset(kept)
