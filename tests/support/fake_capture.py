"""A capture of no real machine: it writes two small files, so that what is done with them can be tested."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentenv.vmm.base import Accelerator, CapturedMemory, CaptureTarget, MachineFacts
from support.stops import Stops

FACTS = MachineFacts("fake", "1", Accelerator.TCG, "x86_64", "fake", "sha256:fake")


@dataclass
class FakeCapture:
    """Implements `MemoryCapture`."""

    target: CaptureTarget
    stops: Stops
    memory: int

    async def finish(self) -> CapturedMemory:
        await self.stops.pass_by("capture.finish")
        below = 0 if self.target.below is None else len(self.target.below)
        salt = self.target.memory_layer.parent.name
        content = json.dumps({"memory": self.memory, "below": below, "salt": salt}).encode()
        self.target.memory_layer.write_bytes(content)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return CapturedMemory(self.target.memory_layer, len(content), digest, len(content), 1.0, FACTS)

    async def abandon(self) -> None:
        self.target.memory_layer.unlink(missing_ok=True)
        self.target.device_state.unlink(missing_ok=True)


async def capture(
    target: CaptureTarget, while_stopped: Callable[[], Awaitable[None]], stops: Stops, memory: int
) -> FakeCapture:
    """Return a capture after what a machine does first."""
    target.device_state.write_bytes(b"state")
    try:
        await while_stopped()
    except BaseException:
        target.device_state.unlink()
        raise
    return FakeCapture(target, stops, memory)
