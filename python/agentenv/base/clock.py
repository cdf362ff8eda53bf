"""Time as a thing that is handed in, so that tests decide what it is."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the rest of the system may know of time."""

    def now(self) -> datetime:
        """Return the wall clock, in UTC; it may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the wall clock, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the kernel's monotonic clock, in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)
