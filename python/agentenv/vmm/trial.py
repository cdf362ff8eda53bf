"""Does a driver really run guests here? Answered by booting the guest kernel once, as a sandbox would.

A few instructions of our own would not do: kvm_pvm runs those, and then never starts an ordinary kernel.
"""

import asyncio
from pathlib import Path

from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.vmm.base import Driver, Machine, MachineEnd, MachineSpec

# With nothing to mount, a kernel that has come through its whole start says so in its last words.
_CAME_THROUGH = "Unable to mount root fs"
_POLL_SECONDS = 0.02
# A monitor needs a user; this one owns nothing anywhere.
_NOBODY = 65534
_EMPTY_ARCHIVE = (b"070701" + b"0" * 88 + b"0000000B" + b"0" * 8 + b"TRAILER!!!").ljust(512, b"\0")


async def find_fault(
    driver: Driver, *, kernel: Path, directory: Path, silence_seconds: float, limit_seconds: float, clock: Clock
) -> str | None:
    """Boot `kernel` under `driver` until it has come through; return None then, else what happened instead.

    Nothing runs any more afterwards; `directory` is the caller's to remove.
    """
    try:
        machine = await driver.boot(_specify(kernel, directory))
    except AgentEnvError as error:
        return error.message
    try:
        return await _observe(machine, silence_seconds, limit_seconds, clock)
    finally:
        await machine.kill()


async def _observe(machine: Machine, silence_seconds: float, limit_seconds: float, clock: Clock) -> str | None:
    try:
        async with asyncio.timeout(silence_seconds):
            while not machine.ended.done() and not machine.console_tail(1):
                await clock.sleep(_POLL_SECONDS)
    except TimeoutError:
        return f"a guest kernel did not say a word within {silence_seconds:g} s"
    try:
        async with asyncio.timeout(limit_seconds):
            end: MachineEnd = await asyncio.shield(machine.ended)
    except TimeoutError:
        return f"a guest kernel did not come through its start within {limit_seconds:g} s"
    return None if _CAME_THROUGH in machine.console_tail() else f"a guest kernel ended at its start: {end.detail}"


def _specify(kernel: Path, directory: Path) -> MachineSpec:
    initramfs = directory / "empty-initramfs"
    directory.mkdir(parents=True, exist_ok=True)
    initramfs.write_bytes(_EMPTY_ARCHIVE)
    initramfs.chmod(0o644)
    return MachineSpec(
        name="trial",
        directory=directory,
        kernel=kernel,
        initramfs=initramfs,
        # The first words come before any driver, so a kernel that never runs is told from a slow one at once.
        command_line="earlyprintk=ttyS0 earlycon ignore_loglevel",
        vcpus=1,
        memory_mib=256,
        disks=(),
        network=None,
        uid=_NOBODY,
    )
