"""Checks of what serves disks: the program, and the daemon of this home with its mount. Starts nothing."""

from collections.abc import Sequence

from agentenv.base import aio, mounts
from agentenv.base.clock import SystemClock
from agentenv.base.errors import AgentEnvError
from agentenv.blocks import program
from agentenv.blocks.blockd import BlockDaemonClient
from agentenv.blocks.processes import find_daemon
from agentenv.blocks.settings import BlocksSettings
from agentenv.main.doctor.check import Check, State
from agentenv.main.home import Home

_REMEDY = "run `aenv setup`"
_DEAD = "a server of this home cleans it up at its start"


async def examine_disks(settings: BlocksSettings, home: Home) -> Sequence[Check]:
    """Look at the program, and ask the daemon that runs, if one does."""
    found = program.current(home.programs)
    built = (
        Check("block_daemon", State.OK, found.name)
        if found is not None
        else Check("block_daemon", State.MISSING, "not prepared", _REMEDY)
    )
    return [built, await _disks(settings, home)]


async def _disks(settings: BlocksSettings, home: Home) -> Check:
    places = home.blocks
    if find_daemon(places.state).keeper is None:
        if mounts.below(places.mount):
            return Check("disks", State.WARNING, f"{places.mount} is a mount that nobody serves", _DEAD)
        return Check("disks", State.OK, "no server of this home runs")
    supervisor = aio.Supervisor()
    client = BlockDaemonClient(places.control, settings, supervisor, SystemClock())
    try:
        greeting = await client.hello()
        images = await client.images()
    except AgentEnvError as error:
        return Check("disks", State.WARNING, error.message, "look at its log")
    finally:
        await client.disconnect()
        await supervisor.stop()
    return Check("disks", State.OK, f"{len(images)} images on {greeting.mount}, served by {greeting.program}")
