"""Groups of servers: their names, their addresses, and what they do if one of them fails."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.ipc import WorkerSetup
from storagegate.serving.group import FrontFailed, ServerGroup, readEndpoint, readHostPort
from storagegate.serving.supervisor import SharedListener, readWorkers
from tests.support.log import LogCase


class FakeFront:
    """
    A server of listeners that are only names.

    @ivar events: The calls.
    """

    def __init__(self, kind: str, *listeners: str, error: Exception | None = None) -> None:
        self.kind = kind
        self.memory: Mapping[str, str] = {}
        self.events: list[Any] = []
        self._listeners = listeners or ("",)
        self._error = error
        self._isOpen = False

    def prepare(self, reactor: Any) -> None:
        """Do nothing."""

    def accepts(self, flag: str) -> bool:
        """Accept its kind and the names of its listeners."""
        return flag == self.kind or flag in self._listeners

    def relocate(self, flag: str, address: int | str) -> None:
        """Record the call."""
        self.events.append((flag, address))

    def listeners(self) -> list[SharedListener]:
        """Return its listeners."""
        return [SharedListener(name, f"tcp:{len(name)}") for name in self._listeners]

    def open(self, reactor: Any, worker: Any, places: Mapping[str, str]) -> Deferred[Any]:
        """Open, or fail."""
        self.events.append(("open", dict(places)))
        if self._error is not None:
            return fail(self._error)
        self._isOpen = True
        return succeed(None)

    def ports(self) -> list[tuple[str, Any]]:
        """Return its listeners as ports, while it is open."""
        return [(name, f"port {name}") for name in self._listeners if self._isOpen]

    def close(self, graceMs: float, patienceMs: float) -> Deferred[Any]:
        """Record the call."""
        self._isOpen = False
        self.events.append(("close", graceMs, patienceMs))
        return fail(ValueError("torn")) if self.kind == "torn" else succeed(None)

    def warnings(self) -> list[str]:
        """Return nothing."""
        return []


class GroupTests(LogCase):
    """Groups of fakes."""

    def test_names(self) -> None:
        """Names are unique: the second server of a kind has a number."""
        group = ServerGroup([FakeFront(kind) for kind in ("http", "grpc", "http", "http")])
        self.assertEqual(list(group.fronts), ["http", "grpc", "http-2", "http-3"])

    def test_listeners(self) -> None:
        """Listeners have the name of their server first, except in a group of one."""
        alone = ServerGroup([FakeFront("gateway", "http", "tcp")])
        self.successResultOf(alone.listen(reactor=MemoryReactorClock()))
        self.assertEqual(list(alone.ports), ["http", "tcp"])
        several = ServerGroup([FakeFront("http"), FakeFront("gateway", "http", "tcp")])
        ports = self.successResultOf(several.listen(reactor=MemoryReactorClock()))
        self.assertEqual(list(ports), ["http", "gateway.http", "gateway.tcp"])

    def test_failed(self) -> None:
        """If one server cannot listen, the error names it, and the others close."""
        error = CannotListenError("127.0.0.1", 50051, OSError(98, "Address already in use"))
        fronts = [FakeFront("http"), FakeFront("grpc", error=error), FakeFront("gateway")]
        group = ServerGroup(fronts)
        found = self.failureResultOf(group.listen(reactor=MemoryReactorClock()), FrontFailed)
        self.assertTrue(str(found.value).startswith("grpc: Couldn't listen on 127.0.0.1:50051"))
        self.assertEqual(found.value.name, "grpc")  # type: ignore[attr-defined]
        self.assertEqual(fronts[0].events, [("open", {}), ("close", 0, 0)])
        self.assertEqual(fronts[2].events, [("close", 0, 0)])
        self.assertEqual(group.ports, {})

    def test_close(self) -> None:
        """All close with the same grace, even if one of them fails."""
        fronts = [FakeFront("torn"), FakeFront("http")]
        self.successResultOf(ServerGroup(fronts).close(200, 100))
        self.assertEqual([each.events for each in fronts], [[("close", 200, 100)]] * 2)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertIn("torn failed to close", self.logged())

    def test_relocate(self) -> None:
        """An address of the command line is for the one server that has such a listener."""
        fronts = [FakeFront("http"), FakeFront("gateway", "http", "tcp"), FakeFront("grpc")]
        group = ServerGroup(fronts)
        group.relocate("grpc", "50051")
        self.assertEqual(fronts[2].events, [("grpc", "50051")])
        for flag, message in (
            ("http", "http and gateway have a http listener: set their options"),
            ("udp", "there is no udp listener, only http, gateway.http, gateway.tcp, grpc"),
        ):
            error = self.assertRaises(ValueError, group.relocate, flag, "3000")
            self.assertEqual(str(error), message)


class AddressTests(SynchronousTestCase):
    """Addresses in the forms of the command line."""

    def test_endpoints(self) -> None:
        """A port, an address and an endpoint string give an endpoint string."""
        for given, found in (
            (3000, "tcp:3000:interface=::1"),
            ("3000", "tcp:3000:interface=::1"),
            (":3000", "tcp:3000:interface=::1"),
            ("0.0.0.0:80", "tcp:80:interface=0.0.0.0"),
            ("[::]:80", "tcp:80:interface=\\:\\:"),
            ("localhost:0", "tcp:0:interface=localhost"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("ssl:443:privateKey=key.pem", "ssl:443:privateKey=key.pem"),
            ("systemd:domain=INET:name=http", "systemd:domain=INET:name=http"),
        ):
            found = found.replace("::1", "\\:\\:1")
            self.assertEqual(readEndpoint(given, "::1"), found)

    def test_hostPorts(self) -> None:
        """A port and an address give an address."""
        for given, found in (
            (50051, "127.0.0.1:50051"),
            ("50051", "127.0.0.1:50051"),
            ("0.0.0.0:50051", "0.0.0.0:50051"),
            ("[::1]:50051", "[::1]:50051"),
        ):
            self.assertEqual(readHostPort(given, "127.0.0.1"), found)

    def test_invalid(self) -> None:
        """Anything else is refused, with the forms that are possible."""
        for given in ("", "http", "host:", "65536", -1, "1.2.3.4:http", "1_0", "+1", "٣"):
            for read in (readEndpoint, readHostPort):
                error = self.assertRaises(ValueError, read, given, "127.0.0.1")
                self.assertIn("is not an address: expected a port, HOST:PORT", str(error))

    def test_workers(self) -> None:
        """A number of workers is a small whole number."""
        self.assertEqual(readWorkers(2), 2)
        for given in (0, -1, 257, 2.0, "2", True, None):
            error = self.assertRaises(ValueError, readWorkers, given)
            self.assertIn("workers is a number from 1 to 256", str(error))


class ShareTests(SynchronousTestCase):
    """The setup of a worker, which JSON carries."""

    def test_places(self) -> None:
        """A worker refuses a listener that the supervisor has not bound."""
        from storagegate.serving.worker import ProgramWorker

        options = {"endpoints": {"http": "tcp:0"}, "secret": "00", "reloadGraceMs": 1}
        setup = WorkerSetup(0, 2, {"http": "inherited:4"}, {}, options)
        worker: Any = ProgramWorker.__new__(ProgramWorker)
        worker.places, worker.endpoints = setup.places, options["endpoints"]
        fronts = [FakeFront("http"), FakeFront("grpc")]
        opening = Deferred.fromCoroutine(ServerGroup(fronts)._open(None, worker))
        found = self.failureResultOf(opening, ValueError)
        self.assertIn("the listener grpc is new: restart the program", str(found.value))
        self.assertEqual(fronts[0].events, [])
