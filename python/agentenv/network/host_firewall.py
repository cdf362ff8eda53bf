"""Other firewalls on the host: chains that would drop what slots forward, and the two rules that let it through.

A drop anywhere is final, so an accept in our own table is not enough. Only chains that nft can see are touched.
"""

from dataclasses import dataclass
from pathlib import Path

from agentenv.network import nft
from agentenv.network.nft import ACCEPT, Json
from agentenv.network.plan import AddressPlan

_LEGACY_TABLES = Path("/proc/net/ip_tables_names")


@dataclass(frozen=True, slots=True)
class ForeignChain:
    """A chain of somebody else that is called for forwarded packets and drops by default."""

    family: str
    table: str
    name: str

    def __str__(self) -> str:
        return f"{self.family} {self.table} {self.name}"


async def find_dropping_chains() -> list[ForeignChain]:
    """Return the foreign chains whose policy drops forwarded IPv4 packets."""
    return [
        ForeignChain(str(chain["family"]), str(chain["table"]), str(chain["name"]))
        for chain in _objects(await nft.listing("chains"), "chain")
        if chain.get("hook") == "forward" and chain.get("policy") == "drop" and chain.get("family") in {"ip", "inet"}
    ]


def find_legacy_tables() -> list[str]:
    """Return the tables of the old iptables, which nft cannot see."""
    try:
        return _LEGACY_TABLES.read_text().split()
    except OSError:
        return []


async def open_forwarding(plan: AddressPlan) -> list[ForeignChain]:
    """Let slots through every dropping chain that does not yet; return the chains that were changed.

    What may reach a slot is decided by our own table; here the links are enough.
    """
    opened = []
    for chain in await find_dropping_chains():
        if not await _our_rules(chain, plan):
            await nft.apply(nft.encode([_insertion(chain, plan, key) for key in ("iifname", "oifname")]))
            opened.append(chain)
    return opened


async def close_forwarding(plan: AddressPlan) -> None:
    """Remove what `open_forwarding` added."""
    for chain in await find_dropping_chains():
        if handles := await _our_rules(chain, plan):
            place = {"family": chain.family, "table": chain.table, "chain": chain.name}
            await nft.apply(nft.encode([{"delete": {"rule": {**place, "handle": handle}}} for handle in handles]))


async def find_closed_chains(plan: AddressPlan) -> list[ForeignChain]:
    """Return the chains that would drop the traffic of slots now."""
    return [chain for chain in await find_dropping_chains() if not await _our_rules(chain, plan)]


async def find_opened_chains(plan: AddressPlan) -> list[ForeignChain]:
    """Return the chains that hold rules of ours."""
    return [chain for chain in await find_dropping_chains() if await _our_rules(chain, plan)]


def _insertion(chain: ForeignChain, plan: AddressPlan, key: str) -> Json:
    expression = [nft.match(nft.meta(key), plan.link_pattern), ACCEPT]
    facts = {"family": chain.family, "table": chain.table, "chain": chain.name}
    return {"insert": {"rule": {**facts, "comment": _comment(plan), "expr": expression}}}


async def _our_rules(chain: ForeignChain, plan: AddressPlan) -> list[object]:
    listed = await nft.listing("chain", chain.family, chain.table, chain.name)
    return [rule["handle"] for rule in _objects(listed, "rule") if rule.get("comment") == _comment(plan)]


def _comment(plan: AddressPlan) -> str:
    return f"{plan.prefix}: traffic of sandboxes"


def _objects(listed: list[Json], kind: str) -> list[Json]:
    return [item for entry in listed if isinstance(item := entry.get(kind), dict)]
