"""Loads a saved state into a monitor that was started for it, and lets the guest go on."""

import os
import stat
from pathlib import Path

from agentenv.base.clock import Clock
from agentenv.base.process import ProcessIdentity
from agentenv.vmm.base import MachineSpec, RestoreSource
from agentenv.vmm.errors import MachineRefused, MonitorLost
from agentenv.vmm.qmp import QmpClient

_POLL_SECONDS = 0.001


def open_state(spec: MachineSpec, source: RestoreSource) -> int:
    """Return a descriptor of the device state. Raises `MachineRefused` when a file is missing or does not fit."""
    try:
        image_bytes = source.memory_image.stat().st_size
        descriptor = os.open(source.device_state, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise MachineRefused(f"the saved state of machine {spec.name} is not there: {error}") from error
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    if is_file and image_bytes == spec.memory_mib * 1024 * 1024:
        return descriptor
    os.close(descriptor)
    raise MachineRefused(
        f"the saved state of machine {spec.name} does not fit: its memory image has {image_bytes} bytes "
        f"for {spec.memory_mib} MiB of memory"
    )


def is_guarded(memory_image: Path) -> bool:
    """Return whether the file system itself refuses to change a memory image.

    Where it does not, and without the preload library, QEMU punches holes into it for what its guest frees. Asking
    for space that is there already changes nothing.
    """
    try:
        descriptor = os.open(memory_image, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        os.posix_fallocate(descriptor, 0, 1)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


async def go_on(control: QmpClient, process: ProcessIdentity, descriptor: int, clock: Clock) -> None:
    """Load the state from a descriptor of the monitor, and return when the virtual CPUs run.

    Raises `MonitorLost` or `CommandRefused`; the caller bounds the time. A monitor that cannot load a state ends.
    """
    await control.execute("migrate-incoming", {"uri": f"fd:{descriptor}"})
    while not _is_running(await control.execute("query-status")):
        if not process.is_alive():
            raise MonitorLost("its monitor ended while it loaded the state")
        await clock.sleep(_POLL_SECONDS)


def _is_running(answer: object) -> bool:
    return isinstance(answer, dict) and answer.get("status") == "running"
