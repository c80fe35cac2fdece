"""
Client addresses: parsing, and the canonical form for comparison and counting. Also the URI schemes
of HTTP and their ports (RFC 9110 section 4.2).

An IPv6 address that embeds an IPv4 address, mapped (C{::ffff:0:0/96}) or by NAT64 (C{64:ff9b::/96},
RFC 6052), is treated as that IPv4 address. So network lists, limits and policies see a client under
one address, however it connects.
"""

from collections.abc import Mapping
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
"""The maximum length of an address, including its zone."""

_CARRIER_BITS = 96
_CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""The networks of IPv6 addresses that embed an IPv4 address in their last four bytes."""

_LOW = (1 << 32) - 1

HTTP = "http"

HTTPS = "https"

SCHEMES = (HTTP, HTTPS)

DEFAULT_PORTS: Mapping[str, int] = {HTTP: 80, HTTPS: 443}


@lru_cache(maxsize=1024)
def _read(text: str) -> Address:
    found = ip_address(text.partition("%")[0])
    if isinstance(found, IPv6Address) and any(found in carrier for carrier in _CARRIERS):
        return IPv4Address(int(found) & _LOW)
    return found


def readAddress(text: str) -> Address:
    """
    Parse an address. An embedded IPv4 address is returned as such, and a zone is dropped.

    @raise ValueError: If the text is not an address.
    """
    if len(text) > LONGEST_ADDRESS:
        raise ValueError("longer than an address")
    return _read(text)


def readNetwork(text: str, *, strict: bool = True) -> Network:
    """
    Parse a network or an address. An IPv4 network written as IPv6 is returned as IPv4.

    @param strict: Whether bits beyond the prefix are an error.
    @raise ValueError: If the text is not a network.
    """
    network = ip_network(text, strict=strict)
    if isinstance(network, IPv6Network) and network.prefixlen >= _CARRIER_BITS:
        first = network.network_address
        if any(first in carrier for carrier in _CARRIERS):
            return IPv4Network((int(first) & _LOW, network.prefixlen - _CARRIER_BITS))
    return network


def schemeOf(isSecure: bool) -> str:
    """Return the scheme of a request's URL."""
    return HTTPS if isSecure else HTTP
