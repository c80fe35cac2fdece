"""Fakes of the daemon's components: they keep state and open no files or sockets."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.task import Clock
from zope.interface import implementer

from storagegate.daemon.components import Components
from storagegate.daemon.config import Configuration, ConfigurationError, StoreOptions
from storagegate.daemon.health import Readiness
from storagegate.objects.issuedkeys import KeyPair
from storagegate.storage.errors import StoreError


class FakeReactor(Clock):
    """Records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.whenRunning: list[Callable[[], object]] = []
        self.fromThread: list[Callable[[], object]] = []
        self.stopped = 0

    def callWhenRunning(self, function: Callable[[], object]) -> None:
        """Record a call for the start."""
        self.whenRunning.append(function)

    def callFromThread(self, function: Callable[[], object]) -> None:
        """Record a call for the next iteration."""
        self.fromThread.append(function)

    def stop(self) -> None:
        """Count the calls of C{stop}."""
        self.stopped += 1


@implementer(IListeningPort)
@define
class FakePort:
    """A port that listens until it is stopped."""

    address: IAddress
    events: list[str]
    name: str
    listening: bool = True

    def startListening(self) -> None:
        """Do nothing; the port listens from the start."""

    def stopListening(self) -> Deferred[None]:
        """Stop listening."""
        self.listening = False
        self.events.append(f"{self.name} stopped listening")
        return succeed(None)

    def getHost(self) -> IAddress:
        """Return the address."""
        return self.address


@define
class FakeSite:
    """A site that is drained when C{drained} fires."""

    resource: Any
    events: list[str]
    drained: Deferred[None] = field(factory=lambda: succeed(None))
    grace: float | None = None

    def drain(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """Start to drain."""
        self.grace = graceSeconds
        self.events.append("site draining")
        return self.drained


@define
class FakeStore:
    """A store whose health is set by the test."""

    events: list[str]
    wrong: dict[str, str | None] = field(factory=lambda: {"catalog": None, "blobs": None})
    closed: Deferred[None] = field(factory=lambda: succeed(None))
    worth: dict[str, str | None] = field(factory=lambda: {"disk": None})

    def health(self) -> Mapping[str, str | None]:
        """Return the problems."""
        return self.wrong

    def warnings(self) -> Mapping[str, str | None]:
        """Return the warnings."""
        return self.worth

    def close(self) -> Deferred[None]:
        """Record the close."""
        self.events.append("store closed")
        return self.closed


@define
class FakeRoom:
    """A fake gateway service; it has ended when C{ended} fires."""

    refused: set[str]
    events: list[str]
    ended: Deferred[None] = field(factory=lambda: succeed(None))
    grace: float | None = None
    root: KeyPair | None = None
    ports: dict[str, Any] = field(factory=dict)
    told: list[Readiness] = field(factory=list)

    def open(self, name: str, place: str) -> IAddress:
        """Listen."""
        self.events.append(f"listen {place}")
        if place in self.refused:
            raise CannotListenError("127.0.0.1", 50051, OSError(98, "Address in use"))
        return IPv4Address("TCP", "127.0.0.1", 50051)

    def attachStore(
        self, store: Any, root: KeyPair, region: str, directory: str, encryption: Any = None
    ) -> None:
        """Record the store."""
        self.events.append(f"gateway attached {region} {directory}")

    def warnings(self) -> Mapping[str, str | None]:
        """Return the warnings."""
        return {"discovery": "consul is away"}

    def onReadinessChange(self, readiness: Readiness) -> None:
        """Record the readiness."""
        self.told.append(readiness)

    def setRootCredentials(self, root: KeyPair) -> None:
        """Record the root key pair."""
        self.root = root

    async def leave(self) -> None:
        """Record the call."""
        self.events.append("gateway leaving")

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """Start to close."""
        self.grace = graceSeconds
        self.events.append("gateway closing")
        return self.ended


class FakeSignals:
    """Counts how often the handlers were installed."""

    def __init__(self) -> None:
        self.installed = 0

    def install(self) -> None:
        """Count the installation."""
        self.installed += 1


class FakeNotifier:
    """Records the notifications of the service manager."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def ready(self, status: str) -> None:
        """Record the notification."""
        self.told.append(f"ready: {status}")

    def reloading(self) -> None:
        """Record the notification."""
        self.told.append("reloading")

    def stopping(self, status: str) -> None:
        """Record the notification."""
        self.told.append(f"stopping: {status}")

    def close(self) -> None:
        """Record the call."""
        self.told.append("closed")


class FakeParts(Components):
    """
    Makes fake components.

    @ivar refused: Endpoint descriptions that cannot be opened.
    @ivar pending: Endpoint descriptions that do not open synchronously.
    @ivar storeError: The exception of opening the store.
    @ivar lockedBy: The exception of locking the data directory.
    @ivar roomError: The exception of making the gateway service.
    """

    def __init__(self) -> None:
        self.reactor = FakeReactor()
        super().__init__(self.reactor)
        self.events: list[str] = []
        self.refused: set[str] = set()
        self.pending: set[str] = set()
        self.storeError: StoreError | None = None
        self.lockedBy: StoreError | None = None
        self.opened: list[tuple[StoreOptions, str]] = []
        self.shown: list[str] = []
        self.theStore = FakeStore(self.events)
        self.sites: list[FakeSite] = []
        self.theSignals = FakeSignals()
        self.theNotifier = FakeNotifier()
        self.theRoom = FakeRoom(self.refused, self.events)
        self.roomError: ConfigurationError | None = None

    def tuneProcess(self) -> None:
        """Leave the settings of the test process unchanged."""
        self.events.append("process tuned")

    def show(self, text: str) -> None:
        """Record the shown text."""
        self.shown.append(text)

    def freezeHeap(self) -> None:
        """Leave the garbage collector of the test process unchanged."""
        self.events.append("heap frozen")

    def signals(
        self,
        stop: Callable[[], object],
        reload: Callable[[], object],
        abort: Callable[[], object],
    ) -> Any:
        """Leave the signal handlers of the test process unchanged."""
        return self.theSignals

    def notifier(self) -> Any:
        """Send no notifications to the real service manager."""
        return self.theNotifier

    def lockData(self, directory: str) -> None:
        """Lock nothing; raise an error if another process holds the lock in the test."""
        if self.lockedBy is not None:
            raise self.lockedBy

    def store(self, options: StoreOptions, directory: str) -> Any:
        """Return the fake store."""
        self.events.append("store opened")
        if self.storeError is not None:
            raise self.storeError
        self.opened.append((options, directory))
        return self.theStore

    def site(self, name: str, resource: Any = None, http2: bool = True) -> Any:
        """Make a fake site."""
        site = FakeSite(resource, self.events)
        self.sites.append(site)
        return site

    def checkAddress(self, place: str) -> None:
        """Refuse addresses that are in use."""
        if place in self.refused:
            raise CannotListenError("", 0, OSError("Address in use"))

    def listen(self, description: str, site: Any) -> Deferred[IListeningPort]:
        """Open a fake port: the first is 9000, the next 9001."""
        self.events.append(f"listen {description}")
        if description in self.refused:
            return fail(CannotListenError("127.0.0.1", 9000, OSError(98, "Address in use\n")))
        if description in self.pending:
            return Deferred()
        address = IPv4Address("TCP", "127.0.0.1", 8999 + len(self.sites))
        return succeed(FakePort(address, self.events, description))

    def adminResource(
        self,
        configuration: Configuration,
        readiness: Callable[[], Readiness],
        makeConsole: Callable[[], Any],
    ) -> Any:
        """Return a name for the admin root."""
        return "admin"

    def serveS3(
        self, site: Any, store: Any, configuration: Configuration, root: KeyPair, readiness: Any
    ) -> None:
        """Record the arguments of the S3 resource."""
        site.resource = (store, configuration.s3, root)

    def gatewayService(self, configuration: Configuration) -> Any:
        """Return the fake gateway service."""
        self.events.append("gateway room")
        if self.roomError is not None:
            raise self.roomError
        return self.theRoom
