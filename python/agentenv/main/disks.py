"""Builds what serves disks: the client, the store and the life of the block daemon, in the one order that works."""

from agentenv.base import aio, log
from agentenv.base.clock import Clock
from agentenv.base.errors import AgentEnvError
from agentenv.blocks import program
from agentenv.blocks.blockd import BlockDaemonClient
from agentenv.blocks.daemon import BlockDaemon
from agentenv.blocks.settings import BlocksSettings
from agentenv.blocks.start import Starter
from agentenv.blocks.store import LayeredStore
from agentenv.main.home import Home

_log = log.get("main")


class Disks:
    """The store of disks of one node, and the daemon under it."""

    def __init__(self, settings: BlocksSettings, home: Home, supervisor: aio.Supervisor, clock: Clock) -> None:
        places = home.blocks
        client = BlockDaemonClient(places.control, settings, supervisor, clock)
        self.store = LayeredStore(client, places, settings)
        self._daemon = BlockDaemon(
            program=program.find(home.programs),
            places=places,
            starter=Starter(places, settings, client, clock),
            client=client,
            supervisor=supervisor,
            clock=clock,
            on_loss=self.store.lose_all,
        )

    async def start(self) -> None:
        """Take over the daemon that runs, or start one, which serves none of the disks that machines have open."""
        if not await self._daemon.start():
            await self.store.forget_earlier_life()

    async def stop(self, *, detach: bool) -> None:
        """End the daemon with the images that nobody uses any more, or leave everything for the next server."""
        try:
            if detach:
                return await self._daemon.detach()
            for name in await self.store.memory_images():
                await self.store.close_memory(name)
            await self._daemon.stop()
        except AgentEnvError as error:
            _log.error("block_daemon_not_stopped", reason=error.message)
