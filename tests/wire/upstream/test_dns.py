"""The Domain Name System: servers of Twisted's on real sockets."""

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import DatagramProtocol, Factory, Protocol
from twisted.names import dns, error
from twisted.names.common import ResolverBase
from twisted.names.server import DNSServerFactory
from twisted.python.failure import Failure

from storagegate.upstream.dns import DNSWatch
from storagegate.upstream.provider import SourceError
from tests.support.discovering import DiscoveryCase, Watcher
from tests.support.handtimed import HandTimed
from tests.support.selection import long

NAME = "_http._tcp.orders.example.com"


def srv(target: str, port: int, weight: int = 1, priority: int = 1, ttl: int = 60) -> Any:
    """Make an SRV record."""
    return dns.Record_SRV(priority, weight, port, target, ttl)


class Zone(ResolverBase):
    """
    Answers from a table.

    @ivar records: What there is, by name.
    @ivar failing: The types that are answered with SERVFAIL.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[str, list[Any]] = {}
        self.failing: set[int] = set()

    def _lookup(self, name: bytes, cls: int, type: int, timeout: Any) -> Any:
        known = self.records.get(name.decode().lower())
        if type in self.failing:
            return fail(Failure(OSError()))
        if known is None:
            return fail(Failure(error.AuthoritativeDomainError(name)))
        headers = [
            dns.RRHeader(name, each.TYPE, dns.IN, each.ttl, each)
            for each in known
            if each.TYPE in (type, dns.CNAME)
        ]
        return succeed((headers, [], []))


class DNSCase(DiscoveryCase):
    """A case with a server."""

    async def setUp(self) -> None:
        """Start it, at one port over UDP and TCP."""
        super().setUp()
        self.timing: Any = self.reactor
        self.zone = Zone()
        self.factory = DNSServerFactory(clients=[self.zone])
        self.factory.noisy = False
        self.protocol = dns.DNSDatagramProtocol(self.factory, reactor=self.reactor)
        self.port, self.udp = self.listen(self.factory, self.protocol)
        self.addCleanup(lambda: self.udp.stopListening())

    def listen(self, factory: Any, protocol: Any) -> tuple[int, Any]:
        """
        Listen at one port over TCP and UDP.

        TCP comes first: a factory may have several ports, so a number that UDP does not have free
        is given back and another one is tried. A datagram protocol may have one alone, until the
        reactor has closed it, and a port that fails to bind does not reach it.

        @return: The number, and the port of UDP.
        """
        while True:
            tcp = self.reactor.listenTCP(0, factory, interface="127.0.0.1")
            self.addCleanup(tcp.stopListening)
            number = tcp.getHost().port
            try:
                return number, self.reactor.listenUDP(number, protocol, interface="127.0.0.1")
            except CannotListenError:
                tcp.stopListening()

    def watch(self, name: str = NAME, **given: Any) -> tuple[DNSWatch, Watcher]:
        """Make a watch."""
        watcher = Watcher()
        resolvers = [f"127.0.0.1:{self.port}"]
        # Both ends take turns in this process: a busy machine may need long.
        given = {"resolvers": resolvers, "timeoutMs": 20_000, "minTtlMs": 1000, **given}
        options = self.options(dns=given).dns

        def publish(instances: Any, wrong: str | None = None) -> None:
            watcher.changed(tuple(instances))

        return DNSWatch(self.timing, options, name, publish), watcher

    async def refused(self, watch: DNSWatch) -> str:
        """Take a step that fails."""
        error = await self.assertFailure(Deferred.fromCoroutine(watch.step()), SourceError)
        return str(error)


class ServerTests(DNSCase):
    """The server of these tests."""

    async def test_takenPort(self) -> None:
        """A number that UDP does not have free is given back, and another one is found."""
        real, tried = self.reactor, []

        class Reactor:
            """A reactor whose first number is taken for UDP."""

            listenTCP = staticmethod(real.listenTCP)

            def listenUDP(self, number: int, protocol: Any, interface: str) -> Any:
                tried.append(number)
                if len(tried) == 1:
                    raise CannotListenError(interface, number, OSError())
                return real.listenUDP(number, protocol, interface=interface)

        protocol = DatagramProtocol()
        self.reactor = Reactor()
        number, udp = self.listen(self.factory, protocol)
        self.addCleanup(udp.stopListening)
        self.assertEqual([len(tried), tried[-1]], [2, number])
        self.assertIs(protocol.transport, udp)


class AnswerTests(DNSCase):
    """One question, and what becomes of its answer."""

    async def test_services(self) -> None:
        """SRV records have ports and weights; those of the first priority count."""
        self.zone.records = {
            NAME: [
                srv("a.example.com", 80, 5, ttl=30),
                srv("b.example.com", 81, 0, ttl=40),
                srv("c.example.com", 82, 65535),
                srv("d.example.com", 83, priority=2),
            ],
            "a.example.com": [dns.Record_A("10.0.0.1", 20), dns.Record_A("10.0.0.2", 20)],
            "b.example.com": [dns.Record_AAAA("fd00::1", 99)],
            "c.example.com": [dns.Record_A("10.0.0.3", 99), dns.Record_AAAA("fd00::2", 9)],
            "d.example.com": [dns.Record_A("10.0.0.4", 1)],
        }
        watch, seen = self.watch()
        self.assertEqual(await watch.step(), 20)
        self.assertEqual(
            seen.weights(),
            {"10.0.0.1:80": 5, "10.0.0.2:80": 5, "[fd00::1]:81": 1, "10.0.0.3:82": 1000},
        )

    async def test_bounds(self) -> None:
        """An answer is good as long as it says, within the bounds."""
        self.zone.records = {
            NAME: [srv("a.example.com", 80, ttl=0)],
            "a.example.com": [dns.Record_A("10.0.0.1", 9000)],
        }
        watch, _seen = self.watch(minTtlMs=5000)
        self.assertEqual(await watch.step(), 5)
        self.zone.records[NAME] = [srv("a.example.com", 80, ttl=8000)]
        self.assertEqual(await watch.step(), 300)

    async def test_addresses(self) -> None:
        """A name without SRV records has addresses, and the port of the options."""
        self.zone.records = {"orders.example.com": [dns.Record_A("10.0.0.1", 7)]}
        watch, seen = self.watch("orders.example.com", port=8080)
        self.assertEqual(await watch.step(), 7)
        self.assertEqual(seen.ids, {"10.0.0.1:8080"})
        self.zone.records = {"orders.example.com": [dns.Record_AAAA("::1", 7)]}
        await watch.step()
        self.assertEqual(seen.ids, {"[::1]:8080"})

    async def test_none(self) -> None:
        """A name that is not there, has no records, or points at a dot has no instances."""
        watch, seen = self.watch(port=80)
        empty: list[list[Any] | None] = [None, [], [srv("", 0)]]
        for records in empty:
            self.zone.records = {} if records is None else {NAME: records}
            seen.told.clear()
            self.assertEqual(await watch.step(), 60 if records else 1)
            self.assertEqual(seen.told, [()])

    async def test_failures(self) -> None:
        """A failure is no answer: of the records, or of an address that they point at."""
        self.zone.records = {NAME: [srv("a.example.com", 80)]}
        watch, seen = self.watch()
        for kind in (dns.SRV, dns.A, dns.AAAA):
            self.zone.failing = {kind}
            self.assertIn("no reply for", await self.refused(watch))
        self.assertEqual(seen.told, [])
        self.flushLoggedErrors(OSError)

    async def test_large(self) -> None:
        """What does not fit a datagram is asked for over TCP, and nothing of it stays open."""
        targets = [f"instance-number-{number}.example.com" for number in range(60)]
        self.zone.records = {NAME: [srv(each, 80) for each in targets]}
        for number, each in enumerate(targets):
            self.zone.records[each] = [dns.Record_A(f"10.0.0.{number}", 60)]
        watch, seen = self.watch()
        await watch.step()
        self.assertEqual(len(seen.told[-1]), 60)
        await self.see(lambda: not self.factory.connections)

    async def test_tooMany(self) -> None:
        """More records than anybody has instances behind one name are refused."""
        self.zone.records = {NAME: [srv("a.example.com", 80 + each) for each in range(101)]}
        watch, _seen = self.watch()
        self.assertIn("more than 100", await self.refused(watch))

    async def test_nonsense(self) -> None:
        """Noise in the place of an answer is no answer, and takes no longer than silence."""

        class Noise(DatagramProtocol):
            def datagramReceived(self, datagram: bytes, addr: Any) -> None:
                self.transport.write(b"\xff" * 100, addr)  # type: ignore[union-attr]
                self.transport.write(datagram[:2] + b"\xff" * 40, addr)  # type: ignore[union-attr]

        port = self.reactor.listenUDP(0, Noise(), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        resolvers = [f"127.0.0.1:{port.getHost().port}"]
        watch, seen = self.watch(resolvers=resolvers, timeoutMs=200)
        self.assertIn("no reply for", await self.refused(watch))
        self.assertEqual(seen.told, [])
        self.flushLoggedErrors()

    async def test_second(self) -> None:
        """When the first resolver is silent, the second one is asked."""
        self.timing = timed = HandTimed(self.reactor)

        class Silent(DatagramProtocol):
            def datagramReceived(self, datagram: bytes, addr: Any) -> None:
                # Its time is over at once, that of the others never.
                timed.clock.advance(20)

        silent = self.reactor.listenUDP(0, Silent(), interface="127.0.0.1")
        self.addCleanup(silent.stopListening)
        self.zone.records = {"a.example.com": [dns.Record_A("10.0.0.1", 60)]}
        resolvers = [f"127.0.0.1:{silent.getHost().port}", f"127.0.0.1:{self.port}"]
        watch, seen = self.watch("a.example.com", resolvers=resolvers, port=80)
        await watch.step()
        self.assertEqual(seen.ids, {"10.0.0.1:80"})


class ProviderTests(DNSCase):
    """The whole provider."""

    def started(self) -> Any:
        """Start one."""
        given = {"resolvers": [f"127.0.0.1:{self.port}"], "timeoutMs": 200, "minTtlMs": 1000}
        return self.provider(
            provider="dns", services={"A": {"name": "a.example.com"}}, dns={**given, "port": 80}
        )

    @long("takes a second or more")
    async def test_changes(self) -> None:
        """Changes are seen once the time to live is over, and a dead server changes nothing."""
        self.zone.records = {"a.example.com": [dns.Record_A("10.0.0.1", 0)]}
        provider, seen = self.started()
        await seen["A"].until("10.0.0.1:80")
        self.zone.records = {"a.example.com": [dns.Record_A("10.0.0.2", 0)]}
        await seen["A"].until("10.0.0.2:80")
        await self.udp.stopListening()
        await self.see(lambda: provider.problem is not None)
        self.assertEqual(seen["A"].ids, {"10.0.0.2:80"})
        self.udp = self.reactor.listenUDP(self.port, self.protocol, interface="127.0.0.1")
        await self.see(lambda: provider.problem is None)
        self.zone.records = {}
        await seen["A"].until()

    async def test_stop(self) -> None:
        """A stop in the middle of a question leaves no port and no timer."""
        asked: Deferred[None] = Deferred()

        class Silent(DatagramProtocol):
            def datagramReceived(self, datagram: bytes, addr: Any) -> None:
                if not asked.called:
                    asked.callback(None)

        port = self.reactor.listenUDP(0, Silent(), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.port = port.getHost().port
        provider, seen = self.started()
        await asked
        await provider.stop()
        self.assertEqual(seen["A"].told, [])

    async def test_stopOverTCP(self) -> None:
        """The same where the question has gone over to TCP."""
        asked: Deferred[None] = Deferred()

        class Silent(Protocol):
            def dataReceived(self, data: bytes) -> None:
                asked.callback(None)

        class Truncating(DatagramProtocol):
            def datagramReceived(self, datagram: bytes, addr: Any) -> None:
                # An answer without records whose bit says that there are more than fit.
                answer = datagram[:2] + b"\x83\x80" + datagram[4:]
                self.transport.write(answer, addr)  # type: ignore[union-attr]

        factory = Factory.forProtocol(Silent)
        factory.noisy = False
        self.port, udp = self.listen(factory, Truncating())
        self.addCleanup(udp.stopListening)
        provider, seen = self.started()
        await asked
        await provider.stop()
        self.assertEqual(seen["A"].told, [])
