"""
The address of a server, as a target of gRPC::

    target    = [ "dns:" [ "///" ] ] host ":" port
              / "ipv4:" address *( "," address )       ; 192.0.2.1:443
              / "ipv6:" address *( "," address )       ; [2001:db8::1]:443
              / "unix:" [ "//" ] path

The addresses of a name or a list are tried as in RFC 8305 (happy eyeballs): the next one a quarter
of a second after the last, until there is a connection.
"""

from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Any

from attrs import frozen
from twisted.internet import address
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    TCP6ClientEndpoint,
    UNIXClientEndpoint,
)
from twisted.internet.interfaces import IHostResolution, IResolutionReceiver
from zope.interface import implementer

from storagegate.core.options import parseDecimal
from storagegate.net.resolvingreactor import ResolvingReactor


@frozen
class RPCTarget:
    """
    The address of a server.

    @ivar text: The target without its scheme, for errors.
    @ivar authority: The value of C{:authority}.
    @ivar host: The name in the server's certificate.
    @ivar port: The port of C{host}.
    @ivar addresses: The addresses to connect to; empty for a name, which is looked up.
    @ivar path: The path of a UNIX socket; empty for the others.
    """

    text: str
    authority: str
    host: str
    port: int = 0
    addresses: tuple[tuple[str, int], ...] = ()
    path: str = ""

    def endpoint(self, reactor: Any, seconds: float) -> Any:
        """
        Return the endpoint.

        @param seconds: The time for a connection.
        """
        if self.path:
            return UNIXClientEndpoint(reactor, self.path, timeout=seconds)
        if len(self.addresses) == 1:
            # The failure of one address is known without a delay.
            [(host, port)] = self.addresses
            kind = TCP6ClientEndpoint if ":" in host else TCP4ClientEndpoint
            return kind(reactor, host, port, timeout=seconds)
        if self.addresses:
            reactor = _ListResolver(reactor, self.addresses)
        return HostnameEndpoint(reactor, self.host, self.port, timeout=seconds)


def readTarget(target: str) -> RPCTarget:
    """
    Read a target.

    @raise ValueError: If it has none of the forms above.
    """
    scheme, _, rest = target.partition(":")
    if scheme == "unix":
        path = rest.removeprefix("//")
        if not path or "\0" in path:
            raise ValueError(f"{target!r:.80} has no path")
        return RPCTarget(target, "localhost", "localhost", path=path)
    if scheme in ("ipv4", "ipv6"):
        kind = IPv4Address if scheme == "ipv4" else IPv6Address
        addresses = tuple(_readAddress(each, kind) for each in rest.split(","))
        return RPCTarget(rest, rest.partition(",")[0], *addresses[0], addresses)
    text = rest.removeprefix("///") if scheme == "dns" else target
    host, port = _split(text)
    try:
        ip_address(host)
    except ValueError:
        return RPCTarget(text, text, host, port)
    return RPCTarget(text, text, host, port, ((host, port),))


def _split(text: str) -> tuple[str, int]:
    host, colon, digits = text.rpartition(":")
    isBracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or "/" in host or (":" in host and not isBracketed):
        raise ValueError(f"{text!r:.80} is not host:port")
    port = parseDecimal(digits, 65_535)
    if not port:
        raise ValueError(f"{text!r:.80} has no port")
    return host[1:-1] if isBracketed else host, port


def _readAddress(text: str, kind: type[IPv4Address] | type[IPv6Address]) -> tuple[str, int]:
    host, port = _split(text)
    try:
        return str(kind(host)), port
    except AddressValueError:
        raise ValueError(f"{text!r:.80} is no address with a port") from None


@implementer(IHostResolution)
@frozen
class _Resolution:
    """A look-up that is complete."""

    name: str

    def cancel(self) -> None:
        """Do nothing: it is complete."""


class _ListResolver(ResolvingReactor):
    """A reactor on which any name has the given addresses."""

    def __init__(self, reactor: Any, addresses: Sequence[tuple[str, int]]) -> None:
        super().__init__(reactor)
        self._addresses = addresses

    def resolveHostName(
        self, resolutionReceiver: IResolutionReceiver, hostName: str, *more: Any, **named: Any
    ) -> IHostResolution:
        """Return the addresses."""
        resolution = _Resolution(hostName)
        resolutionReceiver.resolutionBegan(resolution)
        for host, port in self._addresses:
            kind = address.IPv6Address if ":" in host else address.IPv4Address
            resolutionReceiver.addressResolved(kind("TCP", host, port))
        resolutionReceiver.resolutionComplete()
        return resolution
