"""The client's address behind trusted proxies, for the framework and the gateway."""

from collections.abc import Callable, Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Trust = Callable[[str, int], bool]
"""Says of an address, and how many hops away it is (0: the peer itself), whether to trust it."""

_NAMED = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "linklocal": ("169.254.0.0/16", "fe80::/10"),
    "uniquelocal": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}

TrustedProxies = bool | int | str | Iterable[str] | Trust | None
"""C{trustProxy} of an application and C{trustedProxies} of a gateway, see L{compileTrust}."""

# More addresses in a row than any chain of proxies has.
_MAX_HOPS = 50


def compileTrust(value: Any) -> Trust | None:
    """
    Read the option that names trusted proxies.

    @param value: C{False}, C{True} (every peer: only where none but a proxy can connect), how
        many proxies there are, an address, network or one of C{loopback linklocal uniquelocal}, a
        list or comma-separated text of those, or a function of an address and its distance.
    @return: C{None} to trust no proxy.
    @raise ValueError: If it is none of that.
    """
    if value is False or value is None:
        return None
    if value is True:
        return lambda address, hop: True
    if isinstance(value, int):
        if value < 0:
            raise ValueError("is a number of proxies, which cannot be negative")
        return (lambda address, hop: hop < value) if value else None
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if isinstance(value, Iterable):
        return _networks(value)
    if callable(value):
        trust: Trust = value
        return trust
    raise ValueError("is an address, a network, a number, a boolean or a function")


def _networks(names: Iterable[Any]) -> Trust:
    networks: list[IPv4Network | IPv6Network] = []
    for name in names:
        try:
            networks.extend(ip_network(part) for part in _NAMED.get(name, (name,)))
        except ValueError as error:
            raise ValueError(f"names what is no network: {error}") from None

    def trust(address: str, hop: int) -> bool:
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in networks)

    return trust


def clientAddresses(peer: str, forwardedFor: str, trust: Trust | None) -> list[str]:
    """
    Return the addresses that may be believed, from the peer outwards; the last is the client.

    @param forwardedFor: The values of C{X-Forwarded-For}.
    """
    addresses = [peer]
    if trust is None or not forwardedFor:
        return addresses
    for hop, address in enumerate(reversed(forwardedFor.split(","))):
        if hop >= _MAX_HOPS or not trust(addresses[-1], hop):
            break
        addresses.append(address.strip())
    return addresses
