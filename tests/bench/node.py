"""The server that benches measure, and what they must know of it beyond its API."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from ipaddress import IPv4Address

import aiohttp

from agentenv.main.demo.scratch import ScratchServer
from agentenv.main.home import Home
from agentenv.main.settings import Settings
from agentenv.network.pool import plan_of


@dataclass(frozen=True, slots=True)
class Created:
    """A sandbox and the token of its daemon."""

    id: str
    token: str


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A running server with one session to it."""

    server: ScratchServer
    settings: Settings
    session: aiohttp.ClientSession

    @property
    def accelerator(self) -> str:
        """What executes the guests, by the server's log; known once the first one has been started."""
        events = (json.loads(line) for line in reversed(self.server.log.read_text().splitlines()))
        return str(next(event["accelerator"] for event in events if event["event"] == "machine_started"))

    @property
    def url(self) -> str:
        """Where the server listens."""
        return self.server.url

    @property
    def home(self) -> Home:
        """The server's home."""
        return self.server.home

    async def create(self) -> Created:
        """Create a sandbox from the base image."""
        body = {"templateID": "base", "timeout": 600}
        async with self.session.post(f"{self.url}/v2/sandboxes", json=body, headers=self._key()) as answer:
            answer.raise_for_status()
            document = await answer.json()
        return Created(document["sandboxID"], document["envdAccessToken"])

    async def kill(self, sandbox_id: str) -> None:
        """Kill a sandbox."""
        async with self.session.delete(f"{self.url}/sandboxes/{sandbox_id}", headers=self._key()) as answer:
            answer.raise_for_status()

    def routing(self, sandbox_id: str) -> dict[str, str]:
        """Return the headers that lead to a sandbox's daemon."""
        return {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": "49983"}

    def slot_address(self, sandbox_id: str) -> IPv4Address:
        """Return where the host reaches a sandbox, from the server's own record of it."""
        with closing(sqlite3.connect(f"file:{self.home.records}?mode=ro", uri=True)) as database:
            query = "SELECT document FROM record WHERE kind = 'sandbox' AND key = ?"
            (text,) = database.execute(query, (sandbox_id,)).fetchone()
        return plan_of(self.settings.network).slot(json.loads(text)["handle"]["slot_index"]).address

    def _key(self) -> dict[str, str]:
        return {"X-API-KEY": self.server.key}
