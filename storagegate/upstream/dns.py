"""
Instances that the Domain Name System knows: by SRV records, which have ports and weights
(RFC 2782), else by the addresses of a name, with a port from the options.

An answer is used as long as its records say, within bounds. A name that does not exist has no
instances: that is an answer, while no answer and a server's failure are none.
"""

from collections.abc import Callable
from pathlib import Path
from socket import AF_INET6, inet_ntop
from typing import Any, TypeVar

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError
from twisted.names import dns
from twisted.names.client import Resolver
from twisted.names.error import DNSNameError

from storagegate.upstream.options import DNSOptions, Instance
from storagegate.upstream.provider import Publish, SourceError, boundedWeight, readEach

_RESOLV_CONF = Path("/etc/resolv.conf")

_MAX_RESOLVERS = 3
"""As the C library: each of them may be waited for."""

_MAX_TARGETS = 100
"""Of the SRV records of a name: each may need a question for its address."""

_Place = tuple[str, int, int]
"""A host, a port and a weight."""

_Found = tuple[list[_Place], int]
"""Places and for how many seconds they are good."""

R = TypeVar("R")


class DNSWatch:
    """Asks for one name."""

    def __init__(self, reactor: Any, options: DNSOptions, service: str, publish: Publish) -> None:
        self._reactor = reactor
        self._options = options
        self._name = service
        self._publish = publish

    async def step(self) -> float:
        """Ask once; give how long the answer is good."""
        least, most = self._options.minTtlMs / 1000, self._options.maxTtlMs / 1000
        with _Questions(self._reactor, self._options) as questions:
            places, ttl = await self._find(questions)
        self._publish(*readEach(places, lambda place: [Instance(*place)]))
        return min(max(float(ttl), least), most)

    async def _find(self, questions: "_Questions") -> _Found:
        answers, additional = await questions.ask("lookupService", self._name)
        services = [each for each in answers if each.type == dns.SRV]
        if services:
            return await self._located(questions, services, additional)
        if self._options.port is None:
            return [], 0
        addresses, ttl = await questions.addresses(self._name)
        return [(address, self._options.port, 1) for address in addresses], ttl

    async def _located(
        self, questions: "_Questions", services: list[Any], additional: list[Any]
    ) -> _Found:
        """Give the places behind SRV records: of those of the first priority alone."""
        if len(services) > _MAX_TARGETS:
            raise SourceError(f"{self._name} has more than {_MAX_TARGETS} records")
        ttl = min(each.ttl for each in services)
        best = min(each.payload.priority for each in services)
        places: list[_Place] = []
        for each in services:
            target = str(each.payload.target)
            if each.payload.priority != best or target in ("", "."):
                # A lone dot says that there decidedly is no such service.
                continue
            addresses, good = _matching(additional, target), ttl
            if not addresses:
                addresses, good = await questions.addresses(target)
            ttl = min(ttl, good)
            weight = boundedWeight(each.payload.weight)
            places += [(address, each.payload.port, weight) for address in addresses]
        return places, ttl


def _matching(records: list[Any], name: str) -> list[str]:
    """Give the IPv4 addresses that came with an answer for a name."""
    return [
        each.payload.dottedQuad()
        for each in records
        if each.type == dns.A and str(each.name).lower() == name.lower()
    ]


class _Questions:
    """
    The questions of one round, with all that Twisted's resolver makes for them.

    What it leaves behind, when nobody waits for an answer any more, ends here.
    """

    def __init__(self, reactor: Any, options: DNSOptions) -> None:
        self._leash = CancellableReactor(reactor)
        # Once more after the first time out: a lost packet is not a lost server.
        timeouts = (options.timeoutMs / 1000,) * 2
        servers = list(options.resolvers or _systemResolvers())
        self._resolver = Resolver(servers=servers, timeout=timeouts, reactor=self._leash)

    def __enter__(self) -> "_Questions":
        return self

    def __exit__(self, *error: object) -> None:
        for connection in [*(self._resolver.connections or ())]:
            for _waiting, timeout in (connection.liveMessages or {}).values():
                if timeout.active():
                    timeout.cancel()
        self._leash.loose()

    async def ask(self, lookup: str, name: str) -> tuple[list[Any], list[Any]]:
        """
        Ask.

        @param lookup: The resolver's method.
        @return: The answers and what came with them; nothing of a name that does not exist.
        @raise SourceError: If there is no answer.
        """
        try:
            answers, _authority, additional = await getattr(self._resolver, lookup)(name)
        except DNSNameError:
            return [], []
        except CancelledError:
            raise
        except Exception as error:
            # Time outs, sockets and the codes of servers each have errors of their own.
            raise SourceError(f"no answer for {name}: {type(error).__name__}") from error
        return answers, additional

    async def addresses(self, name: str) -> tuple[list[str], int]:
        """
        Give the addresses of a name, IPv6 if it has no others, and how long they are good.

        @raise SourceError: If there is no answer.
        """
        kinds: tuple[tuple[str, int, Callable[[Any], str]], ...] = (
            ("lookupAddress", dns.A, lambda payload: str(payload.dottedQuad())),
            ("lookupIPV6Address", dns.AAAA, lambda payload: inet_ntop(AF_INET6, payload.address)),
        )
        for lookup, kind, written in kinds:
            answers, _additional = await self.ask(lookup, name)
            found = [each for each in answers if each.type == kind]
            if found:
                addresses = [written(each.payload) for each in found]
                return addresses, min(each.ttl for each in answers)
        return [], 0


def _systemResolvers() -> list[tuple[str, int]]:
    """
    Give the resolvers of this machine; the file is small, and may change at any time.

    @raise SourceError: If it cannot be read.
    """
    try:
        lines = _RESOLV_CONF.read_text("ascii", "replace").splitlines()
    except OSError as error:
        raise SourceError(f"cannot read {_RESOLV_CONF}: {error.strerror}") from None
    words = [line.split() for line in lines]
    named = [each[1] for each in words if len(each) > 1 and each[0] == "nameserver"]
    known = [each for each in named if isIPAddress(each) or isIPv6Address(each)]
    if not known:
        raise SourceError(f"there is no resolver in {_RESOLV_CONF}")
    return [(each, dns.PORT) for each in known[:_MAX_RESOLVERS]]


class CancellableReactor:
    """A reactor that remembers what was begun with it, and can end it."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._calls: list[Any] = []
        self._connectors: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def callLater(self, *arguments: Any, **more: Any) -> Any:
        return self._kept(self._calls, self._reactor.callLater(*arguments, **more))

    def connectTCP(self, *arguments: Any, **more: Any) -> Any:
        return self._kept(self._connectors, self._reactor.connectTCP(*arguments, **more))

    def _kept(self, kept: list[R], made: R) -> R:
        kept.append(made)
        return made

    def loose(self) -> None:
        """End it all."""
        for call in self._calls:
            if call.active():
                call.cancel()
        for connector in self._connectors:
            connector.disconnect()
