"""Machines outlive the process that started them, and the next one takes them over."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentenv.base import process
from agentenv.base.process import ProcessIdentity
from agentenv.vmm.base import EndCause, MachineHandle
from agentenv.vmm.errors import MachineRefused, MonitorLost
from agentenv.vmm.qemu.processes import find_orphans
from support.laboratory import Laboratory, wait_for_console

pytestmark = pytest.mark.vm


async def _start_in_a_process_that_is_killed(laboratory: Laboratory) -> MachineHandle:
    """Boot an idle machine in another process, which is gone, by SIGKILL, when this returns."""
    program = Path(__file__).with_name("doomed_server.py")
    search = os.pathsep.join(entry for entry in sys.path if entry)
    arguments = (sys.executable, program, laboratory.machines, laboratory.kernel, laboratory.initramfs)
    with pytest.raises(process.CommandFailed, match=f"ended with {-signal.SIGKILL}"):
        await process.run(arguments, timeout_seconds=60, environment={**os.environ, "PYTHONPATH": search})
    (directory,) = laboratory.machines.iterdir()
    (identity,) = find_orphans(laboratory.machines)
    return MachineHandle("qemu", directory, identity)


async def test_next_process_takes_over_control_console_and_end(laboratory: Laboratory) -> None:
    handle = await _start_in_a_process_that_is_killed(laboratory)

    machine = await (await laboratory.driver()).adopt(handle)

    assert machine is not None
    assert machine.handle == handle
    assert "test-init: ready" in machine.console_tail(), "what the guest wrote in the first life is still known"
    seen = machine.console_tail().count("tick")
    await machine.pause()
    await machine.resume()
    await wait_for_console(machine, f"tick {seen + 20}")
    end = await machine.kill()
    assert end.cause is EndCause.KILLED_BY_US
    assert not handle.process.is_alive()


async def test_end_of_an_adopted_machine_is_noticed(laboratory: Laboratory) -> None:
    first = await laboratory.start("idle")
    await first.detach()
    machine = await (await laboratory.driver()).adopt(first.handle)
    assert machine is not None

    os.kill(first.handle.process.pid, signal.SIGTERM)

    end = await machine.ended
    assert end.cause is EndCause.VMM_KILLED
    assert "terminating on signal 15" in end.detail


async def test_machine_that_has_ended_is_not_adopted(laboratory: Laboratory) -> None:
    machine = await laboratory.start("idle")
    await machine.kill()

    assert await (await laboratory.driver()).adopt(machine.handle) is None


async def test_process_of_somebody_else_is_not_adopted(laboratory: Laboratory) -> None:
    machine = await laboratory.start("idle")
    ours = process.identify(os.getpid())
    assert ours is not None
    driver = await laboratory.driver()

    assert await driver.adopt(replace(machine.handle, process=ours)) is None
    later = ProcessIdentity(machine.handle.process.pid, machine.handle.process.start_ticks + 1)
    assert await driver.adopt(replace(machine.handle, process=later)) is None


async def test_machine_of_another_driver_is_refused(laboratory: Laboratory) -> None:
    machine = await laboratory.start("idle")

    with pytest.raises(MachineRefused, match="firecracker"):
        await (await laboratory.driver()).adopt(replace(machine.handle, driver="firecracker"))


async def test_frozen_monitor_is_reported_not_waited_for(laboratory: Laboratory) -> None:
    first = await laboratory.start("idle")
    await first.detach()
    os.kill(first.handle.process.pid, signal.SIGSTOP)
    driver = await laboratory.driver(laboratory.quick_settings())

    with pytest.raises(MonitorLost, match="cannot be reached"):
        await driver.adopt(first.handle)


async def test_orphans_are_found_by_their_directory_only(laboratory: Laboratory) -> None:
    machine = await laboratory.start("idle")

    assert find_orphans(laboratory.machines) == [machine.handle.process]
    assert find_orphans(machine.handle.directory) == [machine.handle.process]
    assert find_orphans(laboratory.machines / "idl") == []
    await machine.kill()
    assert find_orphans(laboratory.machines) == []
