"""The hands of the pool: what can be done to one slot or to the host. The kernel's truth, no bookkeeping."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Protocol

from agentenv.base import log
from agentenv.base.clock import Clock
from agentenv.network import host_firewall, leftovers, links, namespaces, nft, rules
from agentenv.network.base import EgressPolicy, GuestIdentity
from agentenv.network.errors import RangeInUse, SlotLost, translated
from agentenv.network.fence import Fence
from agentenv.network.plan import AddressPlan
from agentenv.network.resolver import find_resolvers
from agentenv.network.routes import find_conflict
from agentenv.network.settings import NetworkSettings

_log = log.get("network")


class SlotMaker(Protocol):
    """What the pool asks for. Every call leaves its slot done or undone, also when it is cancelled."""

    async def prepare_host(self, keep: frozenset[int]) -> None:
        """Remove leftovers except the slots in `keep`, and make the host ready for slots."""
        ...

    async def mend_host(self) -> None:
        """Put back what somebody else took from the host since it was prepared."""
        ...

    async def clear_host(self, keep: frozenset[int]) -> None:
        """Remove every slot except those in `keep`; without any of those, the host's rules too."""
        ...

    async def create(self, index: int) -> None:
        """Make a slot with the default policy."""
        ...

    async def set_policy(self, index: int, policy: EgressPolicy) -> None:
        """Let the guest of a slot reach what `policy` says."""
        ...

    async def clean(self, index: int) -> None:
        """Make a slot forget its holder. Raises `NetworkFailed` when it cannot, or is still in use."""
        ...

    async def restore(self, index: int, policy: EgressPolicy) -> None:
        """Verify a slot of an earlier process and write its rules anew. Raises `SlotLost`."""
        ...

    async def remove(self, index: int) -> None:
        """Remove a slot, or what there is of it."""
        ...


class KernelSlotMaker:
    """Makes slots of this host's kernel."""

    def __init__(self, settings: NetworkSettings, plan: AddressPlan, clock: Clock) -> None:
        self._settings = settings
        self._plan = plan
        self._clock = clock
        self._guest = GuestIdentity()
        self._fence = Fence(
            denied=settings.deny_cidrs,
            allowed=settings.allow_private_cidrs,
            max_connections=settings.max_connections_per_slot,
        )

    async def prepare_host(self, keep: frozenset[int]) -> None:
        """Remove leftovers, find the resolver, switch forwarding on and write the host's rules."""
        await self._remove_leftovers(keep)
        await self._refuse_conflicts()
        resolvers = find_resolvers(self._settings.dns_servers)
        if resolvers.problem is not None:
            _log.warning("network_resolver_missing", problem=resolvers.problem)
        self._fence = replace(self._fence, dns_servers=resolvers.servers)
        await nft.apply(rules.host_ruleset(self._plan, self._fence))
        switched, opened = await self._open_the_way()
        _log.info(
            "network_host_prepared",
            network=str(self._plan.network),
            resolvers=[str(server) for server in resolvers.servers],
            resolver_source=resolvers.source,
            forwarding_switched_on=switched,
            opened_chains=opened,
        )

    async def mend_host(self) -> None:
        """A reload of another firewall flushes every table, and with ours the fence before the host's addresses."""
        is_fenced = await nft.has_table(self._plan.prefix)
        if not is_fenced:
            await nft.apply(rules.host_ruleset(self._plan, self._fence))
        switched, opened = await self._open_the_way()
        if switched or opened or not is_fenced:
            _log.warning(
                "network_host_mended",
                rules_were_missing=not is_fenced,
                forwarding_switched_on=switched,
                opened_chains=opened,
            )

    async def _open_the_way(self) -> tuple[bool, list[str]]:
        """Let the host forward; return whether that was off, and the foreign chains that had to be opened."""
        with translated("switching IPv4 forwarding on"):
            switched = links.write_setting("ipv4/ip_forward", "1")
        opened = await host_firewall.open_forwarding(self._plan) if self._settings.open_host_firewall else []
        return switched, [str(chain) for chain in opened]

    async def _remove_leftovers(self, keep: frozenset[int]) -> None:
        found = await leftovers.find_leftovers(self._plan)
        doomed = found.names - self._names(keep)
        if doomed:
            await leftovers.remove_slots(doomed, self._clock)
            _log.info("network_leftovers_removed", slots=sorted(doomed))

    async def _refuse_conflicts(self) -> None:
        with translated("reading routes"):
            conflict = await namespaces.run_in_own_thread("routes", lambda: find_conflict(self._plan))
        if conflict is not None:
            raise RangeInUse(
                f"network {self._plan.network} is in use on this host: {conflict}; set network.network to a free range"
            )

    async def clear_host(self, keep: frozenset[int]) -> None:
        """Remove slots by their names, also those of an earlier process, and the host's rules with the last one."""
        found = await leftovers.find_leftovers(self._plan)
        await leftovers.remove_slots(found.names - self._names(keep), self._clock)
        if not keep:
            if found.opened_chains:
                await host_firewall.close_forwarding(self._plan)
            if found.tables:
                await nft.delete_table(self._plan.prefix)

    async def create(self, index: int) -> None:
        """Make the kernel objects, then the rules; nobody has the slot yet, so the order opens no gap."""
        slot = self._plan.slot(index)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(leftovers.remove_slots, [slot.name], self._clock)
            with translated(f"making slot {slot.name}"):
                await namespaces.run_in_own_thread(slot.name, lambda: links.build(slot, self._guest))
            await self._write_rules(index)
            undo.pop_all()

    async def _write_rules(self, index: int) -> None:
        slot = self._plan.slot(index)
        await nft.apply(rules.slot_ruleset(slot, self._guest, self._fence), namespace=slot.name)

    async def set_policy(self, index: int, policy: EgressPolicy) -> None:
        """Put the tap into the group that the rules let out or keep in."""
        slot = self._plan.slot(index)
        group = links.ONLINE_GROUP if policy.allow_internet else links.OFFLINE_GROUP
        with translated(f"setting the policy of slot {slot.name}"):
            await namespaces.run_in_own_thread(slot.name, lambda: links.set_group(slot, group))

    async def clean(self, index: int) -> None:
        """Forget connections on both sides and the policy; prove that no monitor holds the tap."""
        slot = self._plan.slot(index)
        with translated(f"cleaning slot {slot.name}"):
            await namespaces.run_in_own_thread(slot.name, lambda: links.clean(slot))

    async def restore(self, index: int, policy: EgressPolicy) -> None:
        """Trust the links when they are whole, but write rules and policy anew: settings may have changed."""
        if index >= self._plan.max_slots:
            raise SlotLost(f"slot {self._plan.name(index)} is above max_slots = {self._plan.max_slots}")
        slot = self._plan.slot(index)
        with translated(f"verifying slot {slot.name}"):
            damage = await namespaces.run_in_own_thread(slot.name, lambda: links.find_damage(slot, self._guest))
        if damage is not None:
            raise SlotLost(f"slot {slot.name} is not whole: {damage}")
        await self.set_policy(index, policy)
        await self._write_rules(index)

    async def remove(self, index: int) -> None:
        """Remove the namespace and the link of a slot."""
        await leftovers.remove_slots([self._plan.name(index)], self._clock)

    def _names(self, indexes: Iterable[int]) -> frozenset[str]:
        return frozenset(self._plan.name(index) for index in indexes)
