"""Runs helper tasks for exactly as long as the work that they help."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def beside(*helpers: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `helpers` beside the body. They end with it; an error in one of them ends the body and is raised here."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(helper) for helper in helpers]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as errors:
        # One cause is enough for the user; what followed from it is noise.
        raise errors.exceptions[0] from None
