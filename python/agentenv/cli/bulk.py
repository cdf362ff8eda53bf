"""One verb on several sandboxes: side by side, each with its own outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click

from agentenv.base.errors import AgentEnvError
from agentenv.base.ids import SandboxId

_AT_ONCE = 8


async def for_each_sandbox(sandbox_ids: Sequence[SandboxId], work: Callable[[SandboxId], Awaitable[object]]) -> bool:
    """Print the id of each sandbox for which `work` succeeded, and why it did not for the others; whether all did."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(sandbox_id: SandboxId) -> bool:
        async with gate:
            try:
                await work(sandbox_id)
            except AgentEnvError as error:
                click.echo(f"aenv: {error.message}", err=True)
                return False
        click.echo(sandbox_id)
        return True

    return all(await asyncio.gather(*(one(sandbox_id) for sandbox_id in dict.fromkeys(sandbox_ids))))
