"""The packet rules of a slot and of the host, as nft transactions. Pure; `nft` applies them."""

from agentenv.network.base import GuestIdentity
from agentenv.network.fence import CLOSED_RANGES, Fence, without_overlaps
from agentenv.network.links import OFFLINE_GROUP
from agentenv.network.nft import (
    ACCEPT,
    DROP,
    MASQUERADE,
    Json,
    Ruleset,
    conntrack,
    conntrack_state,
    is_translated,
    jump,
    match,
    meta,
    payload,
)
from agentenv.network.plan import TAP, UPLINK, AddressPlan, SlotPlan

SLOT_TABLE = "slot"

_DESTINATION = payload("ip", "daddr")
_SOURCE = payload("ip", "saddr")
_IS_TCP_OR_UDP = match(meta("l4proto"), ["tcp", "udp"])
_IS_DNS_PORT = (_IS_TCP_OR_UDP, match(payload("th", "dport"), 53))
_IS_IPV6 = match(meta("nfproto"), "ipv6")
_FROM_TAP = match(meta("iifname"), TAP)
_TO_TAP = match(meta("oifname"), TAP)
_FROM_UPLINK = match(meta("iifname"), UPLINK)
_TO_UPLINK = match(meta("oifname"), UPLINK)
_IS_ANSWER = conntrack_state("established", "related")
_IS_NEW = conntrack_state("new")
_HAS_SOCKET: Json = {"match": {"op": ">=", "left": meta("skuid"), "right": 0}}
_REVERSE_ROUTE: Json = {"fib": {"result": "oif", "flags": ["saddr", "iif"]}}
_DESTINATION_TYPE: Json = {"fib": {"result": "type", "flags": ["daddr"]}}
# Hook priorities: before connections are tracked, after that but before translation, and the two of translation.
_RAW, _MANGLE, _DNAT, _SNAT = -300, -150, -100, 100


def slot_ruleset(plan: SlotPlan, guest: GuestIdentity, fence: Fence) -> bytes:
    """Return the rules inside a slot's namespace: translation both ways, and the fence around the guest."""
    rules = Ruleset(SLOT_TABLE)
    _add_refusal(rules)
    _add_slot_translation(rules, plan, guest, fence)

    rules.hook("prerouting_spoofed", priority=_RAW)
    rules.rule("prerouting_spoofed", _IS_IPV6, DROP)
    rules.rule("prerouting_spoofed", _FROM_TAP, match(_SOURCE, str(guest.address), negated=True), DROP)

    # Nothing in the namespace listens, so whatever is for its own addresses is refused.
    rules.hook("input", policy="drop")
    rules.rule("input", jump("refuse"))

    # The monitor runs here, and its guest may have taken it over: whatever comes from a socket is dropped. What the
    # kernel itself sends, to say that it refuses, has none.
    rules.hook("output")
    rules.rule("output", _HAS_SOCKET, DROP)

    _add_egress(rules, fence)
    rules.hook("forward", policy="drop")
    rules.rule("forward", _IS_ANSWER, ACCEPT)
    rules.rule("forward", _FROM_UPLINK, _TO_TAP, _IS_NEW, is_translated(), ACCEPT)
    rules.rule("forward", _FROM_TAP, _TO_UPLINK, _IS_NEW, jump("egress"))
    return rules.encode()


def _add_slot_translation(rules: Ruleset, plan: SlotPlan, guest: GuestIdentity, fence: Fence) -> None:
    rules.hook("prerouting_translated", kind="nat", priority=_DNAT)
    # Only the host itself may begin a connection to a guest; late answers to a former holder of the slot may not.
    rules.rule(
        "prerouting_translated",
        _FROM_UPLINK,
        match(_SOURCE, str(plan.host_address)),
        match(_DESTINATION, str(plan.address)),
        _IS_TCP_OR_UDP,
        _translate_to(str(guest.address)),
    )
    if fence.dns_servers:
        rules.rule(
            "prerouting_translated",
            _FROM_TAP,
            match(_DESTINATION, str(guest.gateway)),
            *_IS_DNS_PORT,
            _translate_to(_one_of([str(server) for server in fence.dns_servers])),
        )
    rules.hook("postrouting_translated", kind="nat", priority=_SNAT)
    rules.rule("postrouting_translated", _TO_TAP, {"snat": {"family": "ip", "addr": str(guest.gateway)}})
    rules.rule("postrouting_translated", _TO_UPLINK, {"snat": {"family": "ip", "addr": str(plan.address)}})


def _translate_to(address: object) -> Json:
    return {"dnat": {"family": "ip", "addr": address}}


def _one_of(addresses: list[str]) -> object:
    """Return an expression that goes through `addresses` in turn, so that a repeated question reaches another."""
    if len(addresses) == 1:
        return addresses[0]
    turn = {"numgen": {"mode": "inc", "mod": len(addresses), "offset": 0}}
    return {"map": {"key": turn, "data": {"set": [[index, address] for index, address in enumerate(addresses)]}}}


def _add_egress(rules: Ruleset, fence: Fence) -> None:
    """Decide about new connections of the guest; `Fence.decide` says the same in Python."""
    rules.chain("egress")
    rules.rule("egress", match(meta("iifgroup"), OFFLINE_GROUP), jump("refuse"))
    rules.rule("egress", {"ct count": {"val": fence.max_connections, "inv": True}}, jump("refuse"))
    if fence.dns_servers:
        rules.rule("egress", is_translated(), _is_any_of(fence), *_IS_DNS_PORT, ACCEPT)
    for name, networks, verdict in (
        ("denied", fence.denied, jump("refuse")),
        ("allowed", fence.allowed, ACCEPT),
        ("closed", CLOSED_RANGES, jump("refuse")),
    ):
        if networks:
            rules.ranges(name, without_overlaps(networks))
            rules.rule("egress", match(_DESTINATION, f"@{name}"), verdict)
    rules.rule("egress", ACCEPT)


def _is_any_of(fence: Fence, left: Json = _DESTINATION) -> Json:
    return match(left, [str(server) for server in fence.dns_servers])


def _add_refusal(rules: Ruleset) -> None:
    """Add the chain that refuses a packet so that its sender knows at once."""
    rules.chain("refuse")
    rules.rule("refuse", match(meta("l4proto"), "tcp"), {"reject": {"type": "tcp reset"}})
    rules.rule("refuse", {"reject": {"type": "icmpx", "expr": "admin-prohibited"}})


def host_ruleset(plan: AddressPlan, fence: Fence) -> bytes:
    """Return the rules of the host. They name all links of this server by a pattern: a new slot changes nothing.

    The chains' policy is accept and every chain lets go of what is not ours first, so nothing else is touched.
    """
    to_slots = match(meta("oifname"), plan.link_pattern)
    not_from_slots = match(meta("iifname"), plan.link_pattern, negated=True)
    not_to_slots = match(meta("oifname"), plan.link_pattern, negated=True)
    network: Json = {"prefix": {"addr": str(plan.network.network_address), "len": plan.network.prefixlen}}
    rules = Ruleset(plan.prefix)
    _add_refusal(rules)

    # Before translation, because a published port of a container is a local address only until then.
    rules.hook("prerouting", priority=_MANGLE)
    rules.rule("prerouting", not_from_slots, ACCEPT)
    rules.rule("prerouting", _IS_IPV6, DROP)
    rules.rule("prerouting", match(_REVERSE_ROUTE, False), DROP)
    rules.rule("prerouting", _IS_ANSWER, ACCEPT)
    _accept_dns(rules, "prerouting", fence)
    rules.rule("prerouting", match(_DESTINATION_TYPE, "unicast", negated=True), jump("refuse"))

    rules.hook("input")
    rules.rule("input", not_from_slots, ACCEPT)
    rules.rule("input", _IS_ANSWER, ACCEPT)
    _accept_dns(rules, "input", fence)
    rules.rule("input", jump("refuse"))

    rules.hook("forward")
    rules.rule("forward", _IS_ANSWER, ACCEPT)
    rules.rule("forward", to_slots, jump("refuse"))
    rules.rule("forward", not_from_slots, ACCEPT)
    _accept_dns(rules, "forward", fence)
    # Whatever the host translates leads to something of its own: containers, cluster services.
    rules.rule("forward", is_translated(), jump("refuse"))

    # A slot that does not exist is refused here; otherwise the packet would leave by the default route.
    rules.hook("output")
    rules.rule(
        "output", not_to_slots, match(meta("oifname"), "lo", negated=True), match(_DESTINATION, network), jump("refuse")
    )

    rules.hook("postrouting", kind="nat", priority=_SNAT)
    rules.rule(
        "postrouting", not_to_slots, match(meta("oifname"), "lo", negated=True), match(_SOURCE, network), MASQUERADE
    )
    return rules.encode()


def _accept_dns(rules: Ruleset, chain: str, fence: Fence) -> None:
    """Let questions through to the resolver, by the address they were sent to: it may be the host's own."""
    if fence.dns_servers:
        original_port = match(conntrack("proto-dst", "original"), 53)
        original_address = _is_any_of(fence, conntrack("ip daddr", "original"))
        rules.rule(chain, _IS_TCP_OR_UDP, original_address, original_port, ACCEPT)
