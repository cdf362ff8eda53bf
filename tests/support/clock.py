"""A clock that moves only when a test says so."""

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Implements `Clock`; `advance` wakes the sleepers whose time has come and lets them run."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.elapsed + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        await settle()
        self.elapsed += seconds
        due = [sleeper for sleeper in self._sleepers if sleeper[0] <= self.elapsed]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > self.elapsed]
        for _, woken in due:
            if not woken.done():
                woken.set_result(None)
        await settle()


async def settle() -> None:
    """Let every task that can run do so until all wait."""
    for _ in range(50):
        await asyncio.sleep(0)
