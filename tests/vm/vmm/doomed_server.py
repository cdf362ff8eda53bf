"""A server that boots one machine and is then killed, as by `kill -9`. Run by the tests of adoption."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from agentenv.base import aio
from support.laboratory import Laboratory, wait_for_console


async def main(machines: Path, kernel: Path, initramfs: Path) -> None:
    machine = await Laboratory(aio.Supervisor(), machines, kernel, initramfs).start("idle")
    await wait_for_console(machine, "tick 1")
    os.kill(os.getpid(), signal.SIGKILL)


asyncio.run(main(*map(Path, sys.argv[1:])))
