"""The host's line to the daemon in a guest: readiness, `/init`, metrics, shutdown.

The guest is hostile: every answer is bounded in size and time, and nothing in it is believed beyond its type.
"""

import asyncio
import base64
import json
import math
import os
import socket
from types import TracebackType
from typing import Any, Self

import aiohttp

from agentenv.base.clock import Clock
from agentenv.guest.base import GuestAddress, GuestMetrics, GuestSetup
from agentenv.guest.errors import GuestRefused, GuestUnreachable

_ANSWER_LIMIT_BYTES = 64 * 1024
_ENTROPY_BYTES = 256
_POLL_SECONDS = 0.01
# A packet sent before the guest's network is up is lost, and TCP repeats it only after a second: so each try is
# short and a new one begins.
_TRY_SECONDS = 0.1


class GuestClient:
    """Speaks HTTP to the daemons of all guests of this node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # Connections are not kept: the same address belongs to another guest tomorrow.
        connector = aiohttp.TCPConnector(limit=0, force_close=True, family=socket.AF_INET)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def wait_ready(self, address: GuestAddress) -> None:
        """Return when the daemon answers. Never gives up by itself: the caller owns the deadline."""
        while not await self._answers(address):
            await self._clock.sleep(_POLL_SECONDS)

    async def wait_reachable(self, address: GuestAddress) -> None:
        """Return when the guest's kernel takes connections for the daemon, which was there when it was captured.

        Never gives up by itself. A request costs a guest that was just restored more than any later one, so the first
        is not spent on asking whether it is well.
        """
        while not await self._accepts(address):
            await self._clock.sleep(_POLL_SECONDS)

    async def _accepts(self, address: GuestAddress) -> bool:
        try:
            async with asyncio.timeout(_TRY_SECONDS):
                _, writer = await asyncio.open_connection(str(address.host), address.port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    async def _answers(self, address: GuestAddress) -> bool:
        if not await self._accepts(address):
            return False
        try:
            return await self.is_healthy(address, timeout_seconds=5)
        except GuestRefused:
            return False

    async def is_healthy(self, address: GuestAddress, *, timeout_seconds: float) -> bool:
        """Return whether `GET /health` answers 2xx within the time."""
        try:
            await self._call("GET", address, "/health", timeout_seconds=timeout_seconds)
        except GuestUnreachable:
            return False
        return True

    async def initialise(self, address: GuestAddress, setup: GuestSetup, *, current_token: str | None) -> None:
        """Push clock, entropy, identity, token and environment; before any traffic, after every boot or restore.

        Raises `GuestUnreachable`, or `GuestRefused` when the daemon answers with an error.
        """
        body: dict[str, Any] = {
            "accessToken": setup.access_token,
            "envVars": setup.environment,
            "timestamp": self._clock.now().isoformat(),
            "sandboxID": setup.sandbox_id,
            "templateID": setup.template_id,
            "hostname": setup.hostname,
            "entropy": base64.b64encode(os.urandom(_ENTROPY_BYTES)).decode(),
        }
        if setup.default_user is not None:
            body["defaultUser"] = setup.default_user
        if setup.default_workdir is not None:
            body["defaultWorkdir"] = setup.default_workdir
        await self._call("POST", address, "/init", body=body, token=current_token, timeout_seconds=30)

    async def metrics(self, address: GuestAddress, token: str) -> GuestMetrics:
        """Return the guest's counters as they are now."""
        text = await self._call("GET", address, "/metrics", token=token, timeout_seconds=5)
        try:
            return _parse_metrics(json.loads(text), int(self._clock.now().timestamp()))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise GuestRefused("the guest's metrics are not what the contract says") from error

    async def freeze_disk(
        self, address: GuestAddress, token: str, *, hold_seconds: float, timeout_seconds: float
    ) -> None:
        """Write everything to the guest's disk and let nobody write more; it thaws by itself after `hold_seconds`."""
        path = f"/fsfreeze?holdMs={round(hold_seconds * 1000)}"
        await self._call("POST", address, path, token=token, timeout_seconds=timeout_seconds)

    async def thaw_disk(self, address: GuestAddress, token: str) -> None:
        """Let the guest write to its disk again. Can be called again, and when nothing is frozen."""
        await self._call("POST", address, "/fsthaw", token=token, timeout_seconds=5)

    async def shut_down(self, address: GuestAddress, token: str) -> None:
        """Ask the guest to sync its disk and power off; returns when it has accepted, not when it is off."""
        await self._call("POST", address, "/shutdown", token=token, timeout_seconds=5)

    async def _call(
        self,
        method: str,
        address: GuestAddress,
        path: str,
        *,
        timeout_seconds: float,
        body: dict[str, Any] | None = None,
        token: str | None = None,
    ) -> bytes:
        assert self._session is not None, "the guest client is not open"
        headers = {} if token is None else {"X-Access-Token": token}
        url = f"http://{address.host}:{address.port}{path}"
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                self._session.request(method, url, json=body, headers=headers, allow_redirects=False) as answer,
            ):
                content = await _read_bounded(answer)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise GuestUnreachable(f"the guest's daemon does not answer {method} {path}: {reason}") from error
        if not 200 <= answer.status < 300:
            text = content[:200].decode(errors="replace")
            raise GuestRefused(f"the guest's daemon answered {method} {path} with {answer.status}: {text}")
        return content


async def _read_bounded(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > _ANSWER_LIMIT_BYTES:
            raise GuestRefused(f"the guest's daemon answered with more than {_ANSWER_LIMIT_BYTES} bytes")
    return bytes(content)


def _parse_metrics(document: Any, now: int) -> GuestMetrics:
    """Return the reading, stamped with our own clock: the guest's is not to be believed."""

    def count(key: str) -> int:
        value = int(document[key])
        if not 0 <= value < 2**63:
            raise ValueError(key)
        return value

    percent = float(document["cpu_used_pct"])
    if not math.isfinite(percent):
        raise ValueError("cpu_used_pct")
    return GuestMetrics(
        timestamp=now,
        cpu_count=count("cpu_count"),
        cpu_used_percent=max(0.0, percent),
        memory_total=count("mem_total"),
        memory_used=count("mem_used"),
        memory_cache=count("mem_cache"),
        disk_total=count("disk_total"),
        disk_used=count("disk_used"),
    )
