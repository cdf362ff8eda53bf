"""The official Python SDK, unmodified, against the door: results and exceptions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest
from e2b import (
    AuthenticationException,
    RateLimitException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
)
from e2b.exceptions import ServiceBusyException

from agentenv.base.errors import Unavailable
from agentenv.guest.base import DAEMON_PORT
from agentenv.orchestrator import base as orchestrator
from agentenv.orchestrator.errors import AdmissionRefused
from support.doors import KEY, Door
from support.wire import Peer, ScriptedGuest

_T = TypeVar("_T")


async def daemon(peer: Peer) -> None:
    while True:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[tuple[Door, dict[str, Any]]]:
    async with ScriptedGuest(daemon) as guest, Door() as door:
        door.orchestrator.ports[DAEMON_PORT] = guest.port
        yield door, {"api_key": KEY, "api_url": door.url, "sandbox_url": door.url}


async def run(work: Callable[[], _T]) -> _T:
    """Run the blocking SDK beside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def test_the_life_of_a_sandbox() -> None:
    def live() -> str:
        sandbox = Sandbox.create(metadata={"k y": "v&1=%"}, **options)
        assert sandbox.is_running()
        info = sandbox.get_info()
        assert (info.sandbox_id, info.template_id, info.name) == (sandbox.sandbox_id, "tbase", "base")
        assert info.metadata == {"k y": "v&1=%"}
        assert (info.end_at - info.started_at).total_seconds() == 300
        assert info.state == SandboxState.RUNNING
        sandbox.set_timeout(20)
        assert Sandbox.connect(sandbox.sandbox_id, **options).sandbox_id == sandbox.sandbox_id
        assert sandbox.kill() is True
        assert sandbox.kill() is False
        assert not sandbox.is_running()
        return sandbox.sandbox_id

    async with started() as (door, options):
        sandbox_id = await run(live)
        assert door.orchestrator.timeouts[0] == (sandbox_id, 20)


async def test_lists_are_paged_and_filtered() -> None:
    def look() -> tuple[list[str], list[str]]:
        paginator = Sandbox.list(limit=1, **options)
        everything = []
        while paginator.has_next:
            everything += [one.sandbox_id for one in paginator.next_items()]
        query = SandboxQuery(metadata={"k ü": "a=b&c%+"}, state=[SandboxState.PAUSED])
        return everything, [one.sandbox_id for one in Sandbox.list(query, **options).next_items()]

    async with started() as (door, options):
        first = door.orchestrator.add()
        second = door.orchestrator.add(metadata={"k ü": "a=b&c%+"}, state=orchestrator.SandboxState.PAUSED)
        door.orchestrator.add(metadata={"k ü": "other"}, state=orchestrator.SandboxState.PAUSED)
        everything, filtered = await run(look)
    assert len(everything) == 3
    assert everything[-2:] == [second.id, first.id]
    assert filtered == [second.id]


async def test_what_is_unknown_raises_what_the_sdk_promises() -> None:
    def look() -> None:
        for name in ("nonexistingsandbox", "i" + "z" * 19):
            assert Sandbox.kill(name, **options) is False
            with pytest.raises(SandboxNotFoundException):
                Sandbox.get_info(name, **options)
            with pytest.raises(SandboxNotFoundException):
                Sandbox.set_timeout(name, 5, **options)
            with pytest.raises(SandboxNotFoundException):
                Sandbox.connect(name, **options)
        with pytest.raises(SandboxException, match="404"):
            Sandbox.create("no-such-template", **options)
        with pytest.raises(SandboxException, match="400"):
            Sandbox.create(timeout=-1, **options)

    async with started() as (_, options):
        await run(look)


async def test_a_wrong_key_raises_an_authentication_exception() -> None:
    def look() -> None:
        with pytest.raises(AuthenticationException):
            Sandbox.create(**options | {"api_key": "wrong"})

    async with started() as (_, options):
        await run(look)


async def test_limits_and_failures_raise_what_the_sdk_promises() -> None:
    async with started() as (door, options):

        def full() -> None:
            with pytest.raises(RateLimitException):
                Sandbox.create(request_timeout=0.5, **options)

        def broken() -> None:
            with pytest.raises(ServiceBusyException):
                Sandbox.create(**options)

        door.orchestrator.failure = AdmissionRefused("full", retry_after_seconds=60)
        await run(full)
        # A definite failure is asked for once: a retry would have succeeded.
        door.orchestrator.failure = Unavailable("broken")
        await run(broken)
        assert not door.orchestrator.created


async def test_a_limit_that_clears_is_waited_for() -> None:
    async with started() as (door, options):
        door.orchestrator.failure = AdmissionRefused("full", retry_after_seconds=1)
        sandbox = await run(lambda: Sandbox.create(**options))
        assert sandbox.sandbox_id in door.orchestrator.sandboxes
