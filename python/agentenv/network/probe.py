"""What this host can do for the network, tried for real and cleaned up: for `doctor`."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pyroute2 import IPRoute

from agentenv.base.clock import Clock, SystemClock
from agentenv.base.errors import AgentEnvError
from agentenv.network import host_firewall, leftovers, links, namespaces, nft, rules, tap
from agentenv.network.base import GuestIdentity
from agentenv.network.errors import NetworkFailed, translated
from agentenv.network.fence import Fence
from agentenv.network.plan import TAP, AddressPlan
from agentenv.network.resolver import find_resolvers
from agentenv.network.routes import find_conflict
from agentenv.network.settings import NetworkSettings


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was tried: whether it works, and what was seen or what to do.

    Without a required one no sandbox has a network; the others are what an operator should know.
    """

    subject: str
    is_ok: bool
    detail: str
    is_required: bool = True


async def probe(settings: NetworkSettings, clock: Clock | None = None) -> list[Fact]:
    """Try everything that slots need and return what was found. Leaves nothing behind, and changes no rule in use."""
    attempt = _Attempt(settings, clock or SystemClock())
    try:
        return [
            await _fact("namespaces, veth and tap", attempt.make_links),
            await _fact("nftables in a namespace", attempt.write_slot_rules),
            await _fact("nftables on the host", attempt.check_host_rules),
            await _fact("address range", attempt.check_range),
            await _fact("resolver for guests", attempt.check_resolver, is_required=False),
            await _fact("other firewalls", attempt.check_firewalls, is_required=False),
        ]
    finally:
        await attempt.clean()


async def _fact(subject: str, check: Callable[[], Awaitable[str]], *, is_required: bool = True) -> Fact:
    try:
        return Fact(subject, is_ok=True, detail=await check(), is_required=is_required)
    except AgentEnvError as error:
        return Fact(subject, is_ok=False, detail=error.message, is_required=is_required)


class _Attempt:
    """Names of its own keep a probe away from the slots of a running server."""

    def __init__(self, settings: NetworkSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._plan = AddressPlan(settings.prefix, settings.network, settings.max_slots, settings.uid_base)
        self._fence = Fence(denied=settings.deny_cidrs, allowed=settings.allow_private_cidrs)

    async def make_links(self) -> str:
        await self.clean()
        with translated("making a namespace with a veth pair and a tap"):
            await namespaces.run_in_own_thread("probe", self._make_links)
        return "made and removed"

    def _make_links(self) -> None:
        host_namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            namespaces.create_and_enter(self._plan.probe_name)
            tap.create(TAP, self._settings.uid_base)
            with IPRoute() as inside:
                links.make_pair(inside, self._plan.probe_name, host_namespace)
        finally:
            os.close(host_namespace)

    async def write_slot_rules(self) -> str:
        if not namespaces.is_mounted(self._plan.probe_name):
            raise NetworkFailed("not tried, because no namespace can be made")
        transaction = rules.slot_ruleset(self._plan.slot(0), GuestIdentity(), self._fence)
        await nft.apply(transaction, namespace=self._plan.probe_name)
        return "the rules of a slot are accepted"

    async def check_host_rules(self) -> str:
        await nft.apply(rules.host_ruleset(self._plan, self._fence), check_only=True)
        return "the rules of the host are accepted"

    async def check_range(self) -> str:
        with translated("reading routes"):
            conflict = await namespaces.run_in_own_thread("probe", lambda: find_conflict(self._plan))
        if conflict is not None:
            raise NetworkFailed(f"{self._plan.network} is in use: {conflict}; set network.network to a free range")
        return f"{self._plan.network} is free, for {self._plan.max_slots} slots"

    async def check_resolver(self) -> str:
        resolvers = find_resolvers(self._settings.dns_servers)
        if resolvers.problem is not None:
            raise NetworkFailed(resolvers.problem)
        return f"{', '.join(map(str, resolvers.servers))} (from {resolvers.source})"

    async def check_firewalls(self) -> str:
        if "filter" in host_firewall.find_legacy_tables():
            raise NetworkFailed(
                "iptables-legacy is in use, whose rules nft cannot see; if guests reach nothing, let "
                f"{self._plan.prefix}-+ through: iptables-legacy -I FORWARD -i {self._plan.prefix}-+ -j ACCEPT"
            )
        if await nft.has_table("firewalld"):
            raise NetworkFailed(
                "firewalld rejects what it does not know; if guests reach nothing, trust the slots: "
                f"firewall-cmd --permanent --zone=trusted --add-source={self._plan.network} && firewall-cmd --reload"
            )
        closed = await host_firewall.find_closed_chains(self._plan)
        if not closed:
            return "none drops forwarded packets"
        named = ", ".join(map(str, closed))
        if self._settings.open_host_firewall:
            return f"{named} drops forwarded packets; the server lets its slots through"
        raise NetworkFailed(f"{named} drops forwarded packets; accept links {self._plan.link_pattern} there")

    async def clean(self) -> None:
        await leftovers.remove_slots([self._plan.probe_name], self._clock)
