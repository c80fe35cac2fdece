"""
The client's address behind trusted proxies, for HTTP, WebSocket, gRPC, S3 and the console.

A proxy appends the address of its own peer to C{X-Forwarded-For}, so the list is read from its end,
and as far as proxies are trusted. An element is an address in any form that proxies write, those of
C{Forwarded} (RFC 7239 section 6) included::

    element = [quote] node [":" port] [quote]
    node    = IPv4address / IPv6address / "[" IPv6address "]"
    port    = 1*5DIGIT / "_" 1*(ALPHA / DIGIT / "." / "_" / "-")

Anything else, C{unknown} for example, ends the walk: the last trusted proxy counts as the client.
No text of a field is kept; addresses are written anew.
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
"""Says of an address, and how many hops away it is (0: the peer itself), whether to trust it."""

_NAMED = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "linklocal": ("169.254.0.0/16", "fe80::/10"),
    "uniquelocal": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}

TrustedProxies = bool | int | str | Iterable[str] | Trust | None
"""C{trustProxy} of an application and C{trustedProxies} of a gateway, see L{compileTrust}."""

_EVERY_IPV4 = readNetwork("0.0.0.0/0")

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
    networks: list[Network] = []
    for name in names:
        try:
            networks.extend(readNetwork(str(part)) for part in _NAMED.get(name, (name,)))
        except ValueError as error:
            raise ValueError(f"names what is no network: {error}") from None
        if ":" in str(name) and networks[-1] == _EVERY_IPV4:
            # Who writes the network of a translator does not mean all of IPv4.
            raise ValueError(f"{name} stands for every IPv4 address; name those of the proxies")

    def trust(address: str, hop: int) -> bool:
        try:
            ip = readAddress(address)
        except ValueError:
            return False
        return any(ip in network for network in networks)

    return trust


_LONGEST_ELEMENT = 160
"""Characters: an address with its zone, brackets, quotes, and a port by a name of 63 letters."""

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
    Read one element of C{X-Forwarded-For}, or the C{for} of C{Forwarded}.

    @return: The address in its canonical form, without port, brackets, quotes and zone; that of
        IPv4 where IPv6 carries one. C{None} for what is no address.
    """
    element = element.strip()
    return _readNode(element) if len(element) <= _LONGEST_ELEMENT else None


def _readForwarded(element: str) -> str | None:
    """Return the address of one element of C{Forwarded}; C{None} without exactly one."""
    # A comma or semicolon within quotes cannot be part of an address: what it splits is none.
    named = [pair.partition("=") for pair in element.split(";")]
    nodes = [value for name, _, value in named if name.strip().lower() == "for"]
    return readElement(nodes[0]) if len(nodes) == 1 else None


def clientAddresses(
    peer: str, trust: Trust | None, forwardedFor: str, forwarded: str = ""
) -> list[str]:
    """
    Return the addresses that may be believed, from the peer outwards; the last is the client.

    @param forwardedFor: The values of C{X-Forwarded-For}.
    @param forwarded: Those of C{Forwarded}, which are read only without the others: a proxy that
        writes one field lets a client's other one pass.
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
    # The front of a longer list is one piece, and no address.
    for element in reversed(field.rsplit(",", _MAX_HOPS)):
        if not element or element.isspace():
            # An empty element is none (RFC 9110 section 5.6.1).
            continue
        if hop >= _MAX_HOPS or not trust(addresses[-1], hop):
            break
        address = read(element)
        if address is None:
            _limited.warn(
                "element",
                "the proxy {proxy} names a client that is no address: {element!a:.64}",
                proxy=addresses[-1],
                element=element.strip()[:_LONGEST_ELEMENT],
            )
            break
        addresses.append(address)
        hop += 1
    return addresses


def metadataAddress(peer: str, trust: Trust | None, metadata: Iterable[tuple[str, Any]]) -> str:
    """
    Return the address of a client of gRPC, as trusted proxies name it in the metadata.

    @param metadata: Of a call; each field may come several times.
    """
    if trust is None:
        return peer
    values: dict[str, list[str]] = {"x-forwarded-for": [], "forwarded": []}
    for name, value in metadata:
        if name in values:
            # All values: the last ones are those that proxies have added.
            values[name].append(str(value))
    joined = (",".join(each) for each in values.values())
    return clientAddresses(peer, trust, *joined)[-1]
