"""Reads the host's routes to find out whether the configured network is free. Blocks."""

import socket
from ipaddress import IPv4Network

from pyroute2 import IPRoute

from agentenv.network.plan import AddressPlan

_MAIN_TABLE = 254


def find_conflict(plan: AddressPlan) -> str | None:
    """Return the route of somebody else that lies inside the plan's network, or None.

    A wider route is no conflict: ours are more specific, and only its part inside our network is shadowed.
    """
    names = dict(socket.if_nameindex())
    with IPRoute() as route:
        for message in route.get_routes(family=socket.AF_INET, table=_MAIN_TABLE):
            destination = message.get_attr("RTA_DST")
            if destination is None:
                continue
            network = IPv4Network((destination, message["dst_len"]))
            link = names.get(message.get_attr("RTA_OIF") or 0, "no link")
            if network.subnet_of(plan.network) and not plan.is_ours(link):
                return f"{network} is routed through {link}"
    return None
