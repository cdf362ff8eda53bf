"""What carries a server's prefix on this host: for start, stop, `doctor --leaks` and tests. Finds and removes."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass

from agentenv.base.clock import Clock
from agentenv.network import host_firewall, links, namespaces, nft
from agentenv.network.errors import NetworkFailed, translated
from agentenv.network.plan import AddressPlan

_POLL_SECONDS = 0.005
_PATIENCE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Kernel objects that carry a prefix: names of namespaces and links, nft tables, chains with rules of ours."""

    namespaces: tuple[str, ...]
    links: tuple[str, ...]
    tables: tuple[str, ...]
    opened_chains: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.namespaces or self.links or self.tables or self.opened_chains)

    @property
    def names(self) -> frozenset[str]:
        """The names of slots that are there, whole or in part."""
        return frozenset(self.namespaces) | frozenset(self.links)


async def find_leftovers(plan: AddressPlan) -> Leftovers:
    """Return everything on this host that belongs to the server with this prefix."""
    with translated("looking for leftovers"):
        found = [name for name in namespaces.listing() if plan.is_ours(name)]
        linked = [name for name in links.names() if plan.is_ours(name)]
    tables = [plan.prefix] if await nft.has_table(plan.prefix) else []
    opened = await host_firewall.find_opened_chains(plan)
    return Leftovers(tuple(found), tuple(sorted(linked)), tuple(tables), tuple(map(str, opened)))


async def remove_slots(names: Iterable[str], clock: Clock) -> None:
    """Remove the namespaces and links of these names; those that are gone already are no error.

    Links go with their namespace, many at once and in the background of the kernel; to delete them one by one
    costs 30 ms each. Those that stay, because a process still holds the namespace, are deleted by name.
    """
    doomed = sorted(names)
    if not doomed:
        return
    with translated("removing namespaces"):
        await namespaces.run_in_own_thread("remove", lambda: namespaces.remove(*doomed))
    if staying := await _wait_gone(doomed, clock):
        with translated("removing links"):
            await namespaces.run_in_own_thread("remove", lambda: links.delete(staying))
        if still := _linked(doomed):
            raise NetworkFailed(f"the links {', '.join(still)} cannot be removed")


async def _wait_gone(names: list[str], clock: Clock) -> list[str]:
    """Wait as long as links go; return those that stay."""
    left, progress = _linked(names), clock.monotonic()
    while left and clock.monotonic() - progress < _PATIENCE_SECONDS:
        await clock.sleep(_POLL_SECONDS)
        before, left = left, _linked(names)
        if len(left) < len(before):
            progress = clock.monotonic()
    return left


def _linked(names: Iterable[str]) -> list[str]:
    existing = {name for _, name in socket.if_nameindex()}
    return [name for name in names if name in existing]
