"""What a server of a home and a network prefix has on this host: for `doctor --leaks`, the demo and tests."""

from pathlib import Path

from agentenv.base import mounts
from agentenv.base.process import ProcessIdentity
from agentenv.blocks.processes import find_daemon
from agentenv.main.home import Home
from agentenv.network.leftovers import find_leftovers
from agentenv.network.pool import plan_of
from agentenv.network.settings import NetworkSettings
from agentenv.vmm.qemu.processes import find_orphans


async def find_leaks(path: Path, network: NetworkSettings) -> list[str]:
    """Return a line for everything that is there. With no server running, each is a leak.

    Looks for monitors, block daemons, namespaces, links, nft tables, opened firewall chains, mounts, and the
    directories and disks of sandboxes.
    """
    home = Home(path)
    leftovers = await find_leftovers(plan_of(network))
    return [
        *(f"monitor process {process.pid}" for process in find_monitors(home)),
        *(f"block daemon process {process.pid}" for process in find_daemon(home.blocks.state).all),
        *(f"network namespace {name}" for name in leftovers.namespaces),
        *(f"network link {name}" for name in leftovers.links),
        *(f"nft table {name}" for name in leftovers.tables),
        *(f"rules in the firewall chain {name}" for name in leftovers.opened_chains),
        *(f"mount {point}" for point in mounts.below(home.blocks.root, home.sandboxes)),
        *(f"directory {entry}" for entry in _entries(home.sandboxes)),
        *(f"disk {entry}" for entry in _entries(home.blocks.writable)),
    ]


def find_monitors(home: Home) -> list[ProcessIdentity]:
    """Return the monitors of this home: those of sandboxes, and those that a trial of an accelerator left."""
    # Not everything below the home: the homes of demos and tests lie there, too.
    return [*find_orphans(home.sandboxes), *find_orphans(home.trials)]


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
