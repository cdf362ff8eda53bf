"""The kernel objects of a slot, made over netlink. Everything here blocks and runs in a thread of its own."""

import contextlib
import os
import socket
from pathlib import Path

from pyroute2 import IPRoute

from agentenv.network import conntrack, namespaces, tap
from agentenv.network.base import GuestIdentity
from agentenv.network.plan import GATEWAY_MAC, SLOT_PREFIX_LENGTH, TAP, UPLINK, SlotPlan

# The group of the tap says what the guest may reach; the rules read it. To change it is one netlink message,
# while every change of rules waits for the kernel's read-copy-update: 10 to 20 ms (docs/internals/network.md).
ONLINE_GROUP = 0
OFFLINE_GROUP = 1

_LOOPBACK_INDEX = 1
_PERMANENT = 0x80
_INSIDE_SETTINGS = {
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv4/ip_forward": "1",
    "ipv4/conf/all/accept_redirects": "0",
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
    # A refused guest hears so at once, up to a hundred times a second; the default is once a second.
    "ipv4/icmp_ratelimit": "10",
}


def build(plan: SlotPlan, guest: GuestIdentity) -> None:
    """Make the namespace, the veth pair and the tap of a slot, with addresses and routes."""
    with contextlib.ExitStack() as stack:
        host_namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, host_namespace)
        namespaces.create_and_enter(plan.name)
        for key, value in _INSIDE_SETTINGS.items():
            write_setting(key, value)
        tap.create(TAP, plan.owner)
        inside = stack.enter_context(IPRoute())
        make_pair(inside, plan.name, host_namespace)
        _address_tap(inside, guest)
        _address_uplink(inside, plan)
        namespaces.enter_descriptor(host_namespace)
        write_setting(f"ipv6/conf/{plan.name}/disable_ipv6", "1")
        host = stack.enter_context(IPRoute())
        index = socket.if_nametoindex(plan.name)
        host.addr("add", index=index, address=str(plan.host_address), prefixlen=SLOT_PREFIX_LENGTH)
        host.link("set", index=index, state="up")
        # The route to the world needs both ends of the pair to be up, so it comes last.
        inside.route("add", dst="default", gateway=str(plan.host_address))


def make_pair(inside: IPRoute, name: str, host_namespace: int) -> None:
    """Make a veth pair: `uplink` in the calling thread's namespace, `name` on the host."""
    inside.link("add", ifname=UPLINK, kind="veth", peer={"ifname": name, "net_ns_fd": host_namespace})


def _address_tap(inside: IPRoute, guest: GuestIdentity) -> None:
    index = socket.if_nametoindex(TAP)
    inside.link("set", index=index, address=GATEWAY_MAC, state="up")
    inside.addr("add", index=index, address=str(guest.gateway), prefixlen=guest.network.prefixlen)
    # Known beforehand, so that the first packet to a restored guest waits for no question and the guest cannot
    # answer for another address.
    inside.neigh("add", ifindex=index, dst=str(guest.address), lladdr=guest.mac, state=_PERMANENT)


def _address_uplink(inside: IPRoute, plan: SlotPlan) -> None:
    index = socket.if_nametoindex(UPLINK)
    inside.link("set", index=_LOOPBACK_INDEX, state="up")
    inside.link("set", index=index, state="up")
    inside.addr("add", index=index, address=str(plan.address), prefixlen=SLOT_PREFIX_LENGTH)


def write_setting(key: str, value: str) -> bool:
    """Set a kernel setting of the calling thread's namespace; return whether it had another value.

    A setting that does not exist (a kernel without IPv6) needs no change.
    """
    path = Path("/proc/sys/net") / key
    try:
        if path.read_text().strip() == value:
            return False
        path.write_text(value)
    except FileNotFoundError:
        return False
    return True


def set_group(plan: SlotPlan, group: int) -> None:
    """Put the tap of a slot into a group."""
    namespaces.enter(plan.name)
    with IPRoute() as inside:
        inside.link("set", index=socket.if_nametoindex(TAP), group=group)


def clean(plan: SlotPlan) -> None:
    """Make a slot forget its last holder. Raises `OSError` EBUSY while a monitor still holds the tap."""
    conntrack.forget(plan.address)
    namespaces.enter(plan.name)
    with tap.attached(TAP):
        conntrack.forget_all()
    with IPRoute() as inside:
        inside.link("set", index=socket.if_nametoindex(TAP), group=ONLINE_GROUP)


def find_damage(plan: SlotPlan, guest: GuestIdentity) -> str | None:
    """Return what is missing of a slot, or None when it is whole."""
    if not namespaces.is_mounted(plan.name):
        return "its namespace is gone"
    expected_host = {(plan.name, str(plan.host_address))}
    if missing := expected_host - _addresses():
        return f"the host lacks {_format(missing)}"
    namespaces.enter(plan.name)
    expected_inside = {(UPLINK, str(plan.address)), (TAP, str(guest.gateway))}
    if missing := expected_inside - _addresses():
        return f"its namespace lacks {_format(missing)}"
    return None


def _addresses() -> set[tuple[str, str]]:
    names = dict(socket.if_nameindex())
    with IPRoute() as route:
        return {
            (names.get(message["index"], ""), str(message.get_attr("IFA_ADDRESS")))
            for message in route.get_addr(family=socket.AF_INET)
        }


def _format(missing: set[tuple[str, str]]) -> str:
    return ", ".join(f"{address} on {name}" for name, address in sorted(missing))


def names() -> list[str]:
    """Return the links of the calling thread's namespace."""
    return [name for _, name in socket.if_nameindex()]


def delete(doomed: list[str]) -> None:
    """Remove links of the calling thread's namespace; those that are gone already are no error."""
    with IPRoute() as route:
        for name in doomed:
            with contextlib.suppress(OSError):
                route.link("del", index=socket.if_nametoindex(name))
