"""Whom a client's calls count for."""

from socket import AF_INET6, inet_ntoa, inet_ntop, inet_pton

# What a provider gives one customer: within it, addresses cost nothing.
_NETWORK_BYTES = 7
_NETWORK = f"/{_NETWORK_BYTES * 8}"
_MAPPED = bytes(10) + b"\xff\xff"


def clientKey(address: str) -> str:
    """
    Give the key of a client's address.

    An IPv6 address counts as its network of 56 bits, one that stands for an IPv4 address as that.
    """
    if ":" not in address:
        return address
    try:
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    if packed.startswith(_MAPPED):
        return inet_ntoa(packed[12:])
    network = packed[:_NETWORK_BYTES].ljust(16, b"\0")
    return inet_ntop(AF_INET6, network) + _NETWORK
