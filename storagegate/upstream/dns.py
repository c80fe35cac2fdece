"""
Instances in the Domain Name System: SRV records, which have ports and weights (RFC 2782), else the
addresses of a name with a port from the options.

A reply is used for the TTL of its records, within bounds. A name that does not exist has no
instances; a missing reply or a server failure changes nothing.
"""

from collections.abc import Callable
from pathlib import Path
from socket import AF_INET6, inet_ntop
from typing import Any, TypeVar

from attrs import define, field, frozen
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError
from twisted.names import dns
from twisted.names.client import Resolver
from twisted.names.error import DNSNameError

from storagegate.upstream.options import DNSOptions, Instance
from storagegate.upstream.provider import Publish, SourceError, boundedWeight, readEach

_RESOLV_CONF = Path("/etc/resolv.conf")

_MAX_RESOLVERS = 3
"""The limit of the C library: each resolver may time out."""

_MAX_TARGETS = 100
"""Limit of the SRV records of a name: each may need a query for its address."""

_Target = tuple[str, int, int]
"""Host, port and weight."""

_Targets = tuple[list[_Target], int]
"""Targets, and their TTL in seconds."""

R = TypeVar("R")


@frozen(eq=False)
class DNSWatch:
    """Follows one name with queries."""

    _reactor: Any
    _options: DNSOptions
    _name: str
    _publish: Publish

    async def step(self) -> float:
        """Query once; return the TTL of the reply."""
        least, most = self._options.minTtlMs / 1000, self._options.maxTtlMs / 1000
        with _Queries(self._reactor, self._options) as queries:
            targets, ttl = await self._find(queries)
        self._publish(*readEach(targets, lambda target: [Instance(*target)]))
        return min(max(float(ttl), least), most)

    async def _find(self, queries: "_Queries") -> _Targets:
        answers, additional = await queries.query("lookupService", self._name)
        services = [each for each in answers if each.type == dns.SRV]
        if services:
            return await self._located(queries, services, additional)
        if self._options.port is None:
            return [], 0
        addresses, ttl = await queries.addresses(self._name)
        return [(address, self._options.port, 1) for address in addresses], ttl

    async def _located(
        self, queries: "_Queries", services: list[Any], additional: list[Any]
    ) -> _Targets:
        """Return the targets of SRV records, only of the first priority."""
        if len(services) > _MAX_TARGETS:
            raise SourceError(f"{self._name} has more than {_MAX_TARGETS} records")
        ttl = min(each.ttl for each in services)
        best = min(each.payload.priority for each in services)
        targets: list[_Target] = []
        for each in services:
            target = str(each.payload.target)
            if each.payload.priority != best or target in ("", "."):
                # A single dot: the service is decidedly not available (RFC 2782).
                continue
            addresses = [
                record.payload.dottedQuad()
                for record in additional
                if record.type == dns.A and str(record.name).lower() == target.lower()
            ]
            good = ttl
            if not addresses:
                addresses, good = await queries.addresses(target)
            ttl = min(ttl, good)
            weight = boundedWeight(each.payload.weight)
            targets += [(address, each.payload.port, weight) for address in addresses]
        return targets, ttl


class _Queries:
    """
    The queries of one step, with a resolver of Twisted.

    Leaving the context ends the timers and connections that the resolver leaves behind.
    """

    def __init__(self, reactor: Any, options: DNSOptions) -> None:
        self._reactor = CancellableReactor(reactor)
        # Two tries: one lost packet does not mean a lost server.
        timeouts = (options.timeoutMs / 1000,) * 2
        servers = list(options.resolvers or _systemResolvers())
        self._resolver = Resolver(servers=servers, timeout=timeouts, reactor=self._reactor)

    def __enter__(self) -> "_Queries":
        return self

    def __exit__(self, *error: object) -> None:
        for connection in [*(self._resolver.connections or ())]:
            for _waiting, timeout in (connection.liveMessages or {}).values():
                if timeout.active():
                    timeout.cancel()
        self._reactor.cancelAll()

    async def query(self, lookup: str, name: str) -> tuple[list[Any], list[Any]]:
        """
        Query records.

        @param lookup: The name of the resolver's method.
        @return: The answers and additional records; both are empty if the name does not exist.
        @raise SourceError: If no reply arrives.
        """
        try:
            answers, _authority, additional = await getattr(self._resolver, lookup)(name)
        except DNSNameError:
            return [], []
        except CancelledError:
            raise
        except Exception as error:
            # Timeouts, sockets and response codes each have their own errors.
            raise SourceError(f"no reply for {name}: {type(error).__name__}") from error
        return answers, additional

    async def addresses(self, name: str) -> tuple[list[str], int]:
        """
        Return the IPv4 addresses of a name, or its IPv6 addresses if it has no others, and their
        TTL.

        @raise SourceError: If no reply arrives.
        """
        kinds: tuple[tuple[str, int, Callable[[Any], str]], ...] = (
            ("lookupAddress", dns.A, lambda payload: str(payload.dottedQuad())),
            ("lookupIPV6Address", dns.AAAA, lambda payload: inet_ntop(AF_INET6, payload.address)),
        )
        for lookup, kind, written in kinds:
            answers, _additional = await self.query(lookup, name)
            found = [each for each in answers if each.type == kind]
            if found:
                addresses = [written(each.payload) for each in found]
                return addresses, min(each.ttl for each in answers)
        return [], 0


def _systemResolvers() -> list[tuple[str, int]]:
    """
    Read the resolvers of this machine. The file is small, and may change at any time.

    @raise SourceError: If the file cannot be read.
    """
    try:
        lines = _RESOLV_CONF.read_text("ascii", "replace").splitlines()
    except OSError as error:
        raise SourceError(f"cannot read {_RESOLV_CONF}: {error.strerror}") from None
    words = [line.split() for line in lines]
    named = [each[1] for each in words if len(each) > 1 and each[0] == "nameserver"]
    known = [each for each in named if isIPAddress(each) or isIPv6Address(each)]
    if not known:
        raise SourceError(f"no resolver in {_RESOLV_CONF}")
    return [(each, dns.PORT) for each in known[:_MAX_RESOLVERS]]


@define(eq=False)
class CancellableReactor:
    """A reactor wrapper that can cancel its timers and close its connections."""

    _reactor: Any
    _calls: list[Any] = field(factory=list)
    _connectors: list[Any] = field(factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def callLater(self, *arguments: Any, **more: Any) -> Any:
        return self._remember(self._calls, self._reactor.callLater(*arguments, **more))

    def connectTCP(self, *arguments: Any, **more: Any) -> Any:
        return self._remember(self._connectors, self._reactor.connectTCP(*arguments, **more))

    def _remember(self, kept: list[R], made: R) -> R:
        kept.append(made)
        return made

    def cancelAll(self) -> None:
        """Cancel the timers, and close the connections."""
        for call in self._calls:
            if call.active():
                call.cancel()
        for connector in self._connectors:
            connector.disconnect()
