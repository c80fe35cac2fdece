"""
The client's address behind trusted proxies, for HTTP, WebSocket, gRPC, S3 and the console.

A proxy appends the address of its peer to C{X-Forwarded-For}, so the list is read from its end,
through the trusted proxies. An element is an address in any form that proxies write, including the
forms of C{Forwarded} (RFC 7239 section 6)::

    element = [quote] node [":" port] [quote]
    node    = IPv4address / IPv6address / "[" IPv6address "]"
    port    = 1*5DIGIT / "_" 1*(ALPHA / DIGIT / "." / "_" / "-")

Anything else, such as C{unknown}, ends the search: the last trusted proxy counts as the client.
Addresses are formatted again, so that no text of a field is kept.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from twisted.logger import Logger

from storagegate.core.addresses import Network, readAddress, readNetwork
from storagegate.core.limitedlog import RateLimitedLog

_log = Logger()
_limited = RateLimitedLog(_log)

Trust = Callable[[str, int], bool]
"""Returns whether to trust an address, given its distance in hops (0 for the peer itself)."""

_NAMED = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "linklocal": ("169.254.0.0/16", "fe80::/10"),
    "uniquelocal": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}

TrustedProxies = bool | int | str | Iterable[str] | Trust | None
"""C{trustProxy} of an application and C{trustedProxies} of a gateway; see L{compileTrust}."""

_EVERY_IPV4 = readNetwork("0.0.0.0/0")

# Maximum number of addresses in a chain, more than any chain of proxies has.
_MAX_HOPS = 50


def compileTrust(value: Any) -> Trust | None:
    """
    Compile the option that names trusted proxies.

    @param value: C{False}, C{True} (every peer: only if nothing but a proxy can connect), the
        number of proxies, an address, a network or one of C{loopback linklocal uniquelocal}, a list
        or comma-separated text of addresses and networks, or a function of an address and its
        distance.
    @return: C{None} to trust no proxy.
    @raise ValueError: If the value is invalid.
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
    networks: list[Network] = []
    for name in names:
        try:
            networks.extend(readNetwork(str(part)) for part in _NAMED.get(name, (name,)))
        except ValueError as error:
            raise ValueError(f"contains an invalid network: {error}") from None
        if ":" in str(name) and networks[-1] == _EVERY_IPV4:
            # The network of an address translator is not meant as all of IPv4.
            raise ValueError(
                f"{name} matches every IPv4 address; name the addresses of the proxies"
            )

    def trust(address: str, hop: int) -> bool:
        try:
            ip = readAddress(address)
        except ValueError:
            return False
        return any(ip in network for network in networks)

    return trust


_LONGEST_ELEMENT = 160
"""Maximum number of characters: an address with zone, brackets, quotes, and a port name of 63
letters."""

_PORT = re.compile(r":(?:[0-9]{1,5}|_[\w.-]{1,63})", re.ASCII)


@lru_cache(maxsize=1024)
def _readNode(text: str) -> str | None:
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    port = ""
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or ":" not in text:
            return None
    elif text.count(":") == 1:
        at = text.index(":")
        text, port = text[:at], text[at:]
    if port and _PORT.fullmatch(port) is None:
        return None
    try:
        return str(readAddress(text))
    except ValueError:
        return None


def readElement(element: str) -> str | None:
    """
    Parse one element of C{X-Forwarded-For}, or the C{for} of C{Forwarded}.

    @return: The address in canonical form, without port, brackets, quotes and zone; an IPv4 address
        carried in IPv6 as IPv4. C{None} if it is not an address.
    """
    element = element.strip()
    return _readNode(element) if len(element) <= _LONGEST_ELEMENT else None


def _readForwarded(element: str) -> str | None:
    """Return the address in one element of C{Forwarded}; C{None} without exactly one."""
    # A comma or semicolon within quotes cannot be part of an address, so the split parts are
    # invalid.
    named = [pair.partition("=") for pair in element.split(";")]
    nodes = [value for name, _, value in named if name.strip().lower() == "for"]
    return readElement(nodes[0]) if len(nodes) == 1 else None


def clientAddresses(
    peer: str, trust: Trust | None, forwardedFor: str, forwarded: str = ""
) -> list[str]:
    """
    Return the trustworthy addresses, from the peer towards the client, which is the last one.

    @param forwardedFor: The values of C{X-Forwarded-For}.
    @param forwarded: The values of C{Forwarded}, used only without C{X-Forwarded-For}: a proxy sets
        one of the two fields and forwards the other as the client sent it.
    """
    addresses = [peer]
    if trust is None:
        return addresses
    field, read = forwardedFor, readElement
    if not field:
        field, read = forwarded, _readForwarded
        if not field:
            return addresses
    hop = 0
    # The front of a longer list stays one piece, which is not an address.
    for element in reversed(field.rsplit(",", _MAX_HOPS)):
        if not element or element.isspace():
            # An empty element is ignored (RFC 9110 section 5.6.1).
            continue
        if hop >= _MAX_HOPS or not trust(addresses[-1], hop):
            break
        address = read(element)
        if address is None:
            _limited.warn(
                "element",
                "the proxy {proxy} names an invalid client address: {element!a:.64}",
                proxy=addresses[-1],
                element=element.strip()[:_LONGEST_ELEMENT],
            )
            break
        addresses.append(address)
        hop += 1
    return addresses


def metadataAddress(peer: str, trust: Trust | None, metadata: Iterable[tuple[str, Any]]) -> str:
    """
    Return the address of a gRPC client, as reported by trusted proxies in the metadata.

    @param metadata: The metadata of a call; fields may be repeated.
    """
    if trust is None:
        return peer
    values: dict[str, list[str]] = {"x-forwarded-for": [], "forwarded": []}
    for name, value in metadata:
        if name in values:
            # All values, as proxies have added the last ones.
            values[name].append(str(value))
    joined = (",".join(each) for each in values.values())
    return clientAddresses(peer, trust, *joined)[-1]
