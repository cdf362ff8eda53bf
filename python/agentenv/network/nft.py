"""nft: expressions as JSON, one table as one transaction, and the running of the `nft` program."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from agentenv.base import process
from agentenv.network import namespaces
from agentenv.network.errors import NetworkFailed, translated

Json: TypeAlias = dict[str, object]

_TIMEOUT_SECONDS = 20
ACCEPT: Json = {"accept": None}
DROP: Json = {"drop": None}
MASQUERADE: Json = {"masquerade": None}


def match(left: Json, right: object, *, negated: bool = False) -> Json:
    """Return the match of `left` with a value, a list of values (any of them), or a set by its `@name`."""
    if isinstance(right, list):
        right = {"set": right} if len(right) != 1 else right[0]
    return {"match": {"op": "!=" if negated else "==", "left": left, "right": right}}


def meta(key: str) -> Json:
    """Return a fact about the packet, such as `iifname`."""
    return {"meta": {"key": key}}


def payload(protocol: str, field: str) -> Json:
    """Return a header field, such as `ip daddr`."""
    return {"payload": {"protocol": protocol, "field": field}}


def conntrack(key: str, direction: str | None = None) -> Json:
    """Return a fact about the packet's connection, such as `state`."""
    return {"ct": {"key": key} if direction is None else {"key": key, "dir": direction}}


def conntrack_state(*states: str) -> Json:
    """Return the match of the connection's state with any of `states`."""
    return {"match": {"op": "in", "left": conntrack("state"), "right": list(states)}}


def is_translated() -> Json:
    """Return the match of connections whose destination was translated."""
    return {"match": {"op": "in", "left": conntrack("status"), "right": "dnat"}}


def jump(chain: str) -> Json:
    """Return the verdict that goes through `chain` and comes back."""
    return {"jump": {"target": chain}}


class Ruleset:
    """One table that replaces an earlier one of its name in a single transaction."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._commands: list[Json] = [
            {"add": {"table": self._named()}},  # so that the delete finds one
            {"delete": {"table": self._named()}},
            {"add": {"table": self._named()}},
        ]

    def _named(self, **facts: object) -> Json:
        owner = {"table": self._table} if facts else {"name": self._table}
        return {"family": "inet", **owner, **facts}

    def chain(self, name: str) -> None:
        """Add a chain that others jump to."""
        self._commands.append({"add": {"chain": self._named(name=name)}})

    def hook(self, name: str, *, kind: str = "filter", priority: int = 0, policy: str = "accept") -> None:
        """Add a chain that the kernel calls at the hook of the same name."""
        facts = self._named(name=name, type=kind, hook=name.partition("_")[0], prio=priority, policy=policy)
        self._commands.append({"add": {"chain": facts}})

    def ranges(self, name: str, networks: Sequence[object]) -> None:
        """Add a set of IPv4 networks, which must not overlap."""
        elements = [_as_prefix(str(network)) for network in networks]
        facts = self._named(name=name, type="ipv4_addr", flags=["interval"], elem=elements)
        self._commands.append({"add": {"set": facts}})

    def rule(self, chain: str, *expressions: Json) -> None:
        """Add a rule at the end of `chain`."""
        self._commands.append({"add": {"rule": self._named(chain=chain, expr=list(expressions))}})

    def encode(self) -> bytes:
        """Return the transaction as `nft -j -f -` reads it."""
        return encode(self._commands)


def _as_prefix(network: str) -> Json:
    address, _, length = network.partition("/")
    return {"prefix": {"addr": address, "len": int(length)}}


def encode(commands: Sequence[Json]) -> bytes:
    """Return `commands` as `nft -j -f -` reads them."""
    return json.dumps({"nftables": commands}).encode()


async def apply(transaction: bytes, *, namespace: str | None = None, check_only: bool = False) -> None:
    """Make `transaction` true, all of it or nothing, in a namespace or here.

    The program is used rather than its library in this process: the library keeps global tables that two
    threads must not build at once, and a fault in it would end the server. The price is 4 ms per slot.
    """
    arguments = ["nft", "-j", *(["-c"] if check_only else []), "-f", "-"]
    if namespace is not None:
        arguments = ["nsenter", f"--net={namespaces.path_of(namespace)}", *arguments]
    with translated("nft" if namespace is None else f"nft in {namespace}"):
        await process.run(arguments, stdin=transaction, timeout_seconds=_TIMEOUT_SECONDS)


async def listing(*what: str, namespace: str | None = None) -> list[Json]:
    """Return the objects that `nft list <what>` names."""
    arguments: list[str | Path] = ["nft", "-j", "-a", "list", *what]
    if namespace is not None:
        arguments = ["nsenter", f"--net={namespaces.path_of(namespace)}", *arguments]
    with translated(f"nft list {' '.join(what)}"):
        answer = await process.run(arguments, timeout_seconds=_TIMEOUT_SECONDS)
    try:
        objects = json.loads(answer.stdout)["nftables"]
    except (ValueError, KeyError, TypeError) as error:
        raise NetworkFailed(
            "nft answered something that is not its JSON; is nftables 1.0 or later installed?"
        ) from error
    return [item for item in objects if isinstance(item, dict)]


async def has_table(table: str, *, namespace: str | None = None) -> bool:
    """Return whether the table `inet <table>` exists."""
    named = [item.get("table") for item in await listing("tables", "inet", namespace=namespace)]
    return any(isinstance(item, dict) and item.get("name") == table for item in named)


async def delete_table(table: str) -> None:
    """Remove the table `inet <table>`, if it exists."""
    facts: Json = {"table": {"family": "inet", "name": table}}
    await apply(encode([{"add": facts}, {"delete": facts}]))
