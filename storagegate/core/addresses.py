"""
Addresses of clients: how they are read, and the form in which they are compared and counted.

An IPv6 address that carries one of IPv4, mapped (C{::ffff:0:0/96}) or by NAT64 (C{64:ff9b::/96},
RFC 6052), is that IPv4 address: lists of networks, limits and policies see one client under one
address, by whichever way it came.
"""

from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LONGEST_ADDRESS = 64
"""Characters: no address is longer, its zone included."""

_CARRIER_BITS = 96
_CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""The networks whose addresses carry one of IPv4 in their last four bytes."""

_LOW = (1 << 32) - 1


@lru_cache(maxsize=1024)
def _read(text: str) -> Address:
    found = ip_address(text.partition("%")[0])
    if isinstance(found, IPv6Address) and any(found in carrier for carrier in _CARRIERS):
        return IPv4Address(int(found) & _LOW)
    return found


def readAddress(text: str) -> Address:
    """
    Read an address; one of IPv4 that IPv6 carries is one of IPv4, and a zone is left out.

    @raise ValueError: If it is none.
    """
    if len(text) > LONGEST_ADDRESS:
        raise ValueError("longer than an address")
    return _read(text)


def readNetwork(text: str, *, strict: bool = True) -> Network:
    """
    Read a network or an address; one of IPv4 that is written as IPv6 is one of IPv4.

    @param strict: Whether bits behind the prefix are an error.
    @raise ValueError: If it is none.
    """
    network = ip_network(text, strict=strict)
    if isinstance(network, IPv6Network) and network.prefixlen >= _CARRIER_BITS:
        first = network.network_address
        if any(first in carrier for carrier in _CARRIERS):
            return IPv4Network((int(first) & _LOW, network.prefixlen - _CARRIER_BITS))
    return network
