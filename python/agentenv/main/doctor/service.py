"""Puts the doctor's questions together. The order here is the order of the answer."""

from functools import partial

from agentenv.main.doctor.check import Check, Question, answer
from agentenv.main.doctor.disks import examine_disks
from agentenv.main.doctor.host import examine_devices, examine_qemu, examine_resources, examine_system
from agentenv.main.doctor.machine import ProbeMachine, examine_machine
from agentenv.main.doctor.network import examine_network
from agentenv.main.doctor.prepared import examine_prepared
from agentenv.main.home import Home
from agentenv.main.settings import Settings

_PROBE_SECONDS = 120


async def diagnose(settings: Settings, probe: ProbeMachine) -> list[Check]:
    """Return everything that this host can do for a server with these settings, and what it lacks."""
    return await answer(
        (
            Question("system", examine_system),
            Question("resources", partial(examine_resources, settings.home)),
            Question("qemu", partial(examine_qemu, settings.vmm.qemu_binary)),
            Question("driver", partial(examine_machine, probe), timeout_seconds=_PROBE_SECONDS),
            Question("devices", examine_devices),
            Question("network", partial(examine_network, settings.network)),
            Question("disks", partial(examine_disks, settings.blocks, Home(settings.home))),
            Question("prepared", partial(examine_prepared, settings.home)),
        )
    )
