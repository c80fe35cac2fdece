"""Watchers and test cases for discovery."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.upstream.options import DiscoveryOptions, Instance, readDiscovery
from storagegate.upstream.provider import InstanceProvider
from storagegate.upstream.proxy import makeProvider


class Watcher:
    """
    Records the instances of one service.

    @ivar told: All published lists, the latest last.
    """

    def __init__(self) -> None:
        self.told: list[tuple[Instance, ...]] = []
        self._waiting: list[tuple[set[str], Deferred[None]]] = []

    def changed(self, instances: tuple[Instance, ...]) -> None:
        """Record a published list."""
        self.told.append(instances)
        for wanted, waiter in [*self._waiting]:
            if wanted == self.ids:
                self._waiting.remove((wanted, waiter))
                waiter.callback(None)

    @property
    def ids(self) -> set[str] | None:
        """Return the ids of the current instances; C{None} before the first list."""
        return {each.id for each in self.told[-1]} if self.told else None

    def weights(self) -> dict[str, int]:
        """Return the weights of the current instances."""
        return {each.id: each.weight for each in self.told[-1]}

    def secured(self) -> dict[str, bool | None]:
        """Return whether the current instances use TLS; C{None} if unknown."""
        return {each.id: each.tls for each in self.told[-1]}

    async def until(self, *ids: str) -> None:
        """Wait until the instances have these ids."""
        if self.ids != set(ids):
            waiter: Deferred[None] = Deferred()
            self._waiting.append((set(ids), waiter))
            await waiter


class DiscoveryCase(TestCase):
    """A test case that stops its providers at the end."""

    timeout = 120

    def setUp(self) -> Any:
        """Get the reactor."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.meters = MetricsRegistry()

    def folder(self) -> Path:
        """Make a directory."""
        path = Path(self.mktemp()).absolute()
        path.mkdir(parents=True)
        return path

    def file(self, content: str) -> str:
        """Make a file."""
        path = self.folder() / "file"
        path.write_text(content)
        return str(path)

    def options(self, **given: Any) -> DiscoveryOptions:
        """Read options."""
        return readDiscovery(DiscoveryOptions(), given)

    def provider(self, **given: Any) -> tuple[InstanceProvider, dict[str, Watcher]]:
        """Make and start a provider that watches all services of its options."""
        options = self.options(**given)
        provider = makeProvider(options, self.reactor, self.meters, uniform=lambda low, high: low)
        watchers = {}
        for name in options.services:
            watchers[name] = Watcher()
            provider.watch(name, watchers[name].changed)
        provider.start()
        self.addCleanup(provider.stop)
        return provider, watchers

    async def see(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; the timeout of the test case limits the wait."""
        while not condition():
            await deferLater(self.reactor, 0.02)

    def counted(self, name: str) -> dict[str, float]:
        """Return the values of a metric by service."""
        return {
            labels[0]: value
            for family in self.meters.snapshot()
            if family.name == name
            for labels, value in family.samples
        }


HEAD = b"HTTP/1.1 200 OK\r\nX-Consul-Index: 77\r\n"

NONSENSE: dict[str, tuple[bytes, bool]] = {
    "failing": (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}", True),
    "refusing": (b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n[]", True),
    "nothing": (b"", True),
    "noise": (b"\x00\xff\x16\x03 what?\r\n\r\n" * 20, True),
    "words": (HEAD + b"Content-Length: 5\r\n\r\nhello", True),
    "empty": (HEAD + b"Content-Length: 0\r\n\r\n", True),
    "mapping": (HEAD + b"Content-Length: 2\r\n\r\n{}", True),
    "types": (HEAD + b'Content-Length: 23\r\n\r\n[{"Service": 7}, 8, []]', True),
    "deep": (HEAD + b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000, True),
    "cut": (HEAD + b"Content-Length: 500\r\n\r\n[", True),
    "huge": (HEAD + b"Content-Length: 3000000\r\n\r\n" + b" " * 3_000_000, True),
    "heads": (HEAD + b"X-Much: of it\r\n" * 40_000, False),
    "silent": (b"", False),
    "stuck": (HEAD + b"Content-Length: 500\r\n\r\n[", False),
}
"""Invalid responses of a source, by name: the bytes, and whether the connection is then closed."""


class NonsenseFactory(Factory):
    """
    Sends an invalid response: the one that a request names in its target or its body.

    @ivar open: The open connections.
    """

    noisy = False

    def __init__(self, written: Callable[[str], bytes], asked: Callable[[str], object]) -> None:
        """
        @param written: Returns the bytes in requests for a service with a name.
        @param asked: Called with the name before the response.
        """
        self.asked = asked
        self.marks = {written(name): name for name in NONSENSE}
        self.open: list[Protocol] = []

    def buildProtocol(self, addr: Any) -> Protocol:
        """Make the protocol of a connection."""
        protocol = _Nonsense()
        protocol.factory = self
        return protocol


class _Nonsense(Protocol):
    _seen = b""

    def connectionMade(self) -> None:
        factory: Any = self.factory
        factory.open.append(self)

    def dataReceived(self, data: bytes) -> None:
        factory: Any = self.factory
        self._seen += data
        for mark, name in factory.marks.items():
            if mark in self._seen:
                self._seen = b""
                wire, closes = NONSENSE[name]
                factory.asked(name)
                self.transport.write(wire)  # type: ignore[union-attr]
                if closes:
                    self.transport.loseConnection()  # type: ignore[union-attr]
                return

    def connectionLost(self, reason: Any = None) -> None:
        factory: Any = self.factory
        factory.open.remove(self)
