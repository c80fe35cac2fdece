"""
The parts that the daemon is put together from, each imported when it is needed.

This is the one place that knows the constructors of the store, the trunk and the rooms.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IListeningPort, IProtocolFactory

from storagegate.daemon import health
from storagegate.daemon.config import Configuration, S3Options, StoreOptions
from storagegate.daemon.logs import Logs
from storagegate.daemon.process import SignalHandlers, freezeHeap, tuneProcess
from storagegate.daemon.rootcredentials import RootCredentials
from storagegate.daemon.systemd import Notifier
from storagegate.storage.files import DirectoryLock
from storagegate.telemetry.metrics import MetricsRegistry

if TYPE_CHECKING:
    # A process that is alone has no use for it.
    from storagegate.net.ipc import WorkerIPC

# S3 clients keep a connection over the pauses between two commands, and a proxy in front keeps
# its own for a minute: the proxy should be the one that closes first.
_S3_KEEP_ALIVE_SECONDS = 75


class Store(Protocol):
    """What the daemon itself asks of the store."""

    def health(self) -> Mapping[str, str | None]:
        """Tell of each part why no write can be taken; L{None} where nothing is wrong."""

    def warnings(self) -> Mapping[str, str | None]:
        """Tell what an operator should look at while the store goes on."""

    def close(self) -> Awaitable[None]:
        """Finish what waits and let go of the data."""


class RequestSite(Protocol):
    """What the daemon itself asks of a site."""

    def drain(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """Close what is idle, let the rest end, and abort it after the grace."""


class GatewayService(Protocol):
    """
    What the daemon itself asks of the room behind the gateway's listeners.

    @ivar ports: Those that are open, by the name of the listener.
    """

    @property
    def ports(self) -> Mapping[str, Any]:
        """Give the ports."""

    def open(self, name: str, place: str) -> IAddress:
        """Open a listener. Raises C{CannotListenError} if the place cannot be had."""

    def attachStore(self, store: Any, root: RootCredentials, region: str, directory: str) -> None:
        """Put in the services that need the store."""

    def warnings(self) -> Mapping[str, str | None]:
        """Tell what an operator should look at while calls are taken."""

    def onReadinessChange(self, readiness: health.Readiness) -> None:
        """Have the gRPC health service say how the daemon is."""

    def setRootCredentials(self, root: RootCredentials) -> None:
        """Take another root key pair."""

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Awaitable[None]:
        """Let calls end, cut them after the grace, and let go of what they needed."""


class ListenerProtocol(Protocol):
    """
    The root of a site.

    @ivar handler: Handles the requests; it may be exchanged at any time.
    """

    handler: Any


class Components:
    """
    Makes the real parts.

    @ivar meters: What the process counts with.
    @ivar logs: The log of this process.
    """

    def __init__(self, reactor: Any, link: "WorkerIPC | None" = None) -> None:
        """
        @param link: What a worker knows of the others; C{None} where there are none.
        """
        self._reactor = reactor
        self._link = link
        self.meters = MetricsRegistry()
        self.logs = Logs()
        self._callLog: Any = None
        self._observation: Any = None
        self._sites: dict[str, Any] = {}
        # Nobody counts requests and commits where nobody can ask.
        self._isAsked = False
        self._tracer: Any = None

    def tuneProcess(self) -> None:
        """Set up what concerns the whole process."""
        tuneProcess()

    def show(self, text: str) -> None:
        """
        Show the operator what must not stay in a log file; a process without a terminal or a
        pipe of its own shows nothing.
        """
        # twistd has put its log in the place of sys.stdout.
        if sys.__stdout__ is not None:
            print(text, file=sys.__stdout__, flush=True)

    def freezeHeap(self) -> None:
        """Tune the process once everything is made."""
        freezeHeap()

    def signals(self, stop: Callable[[], object], reload: Callable[[], object]) -> SignalHandlers:
        """Make the handlers of the process's signals."""
        return SignalHandlers(self._reactor, stop, reload, isWorker=self._link is not None)

    def prepareStore(self, options: StoreOptions, directory: str) -> DirectoryLock:
        """
        Do what comes before any worker opens the store; blocking.

        @return: The lock of the data directory: it lasts while this process or a worker lives.
        @raise StoreError: If it is not usable.
        """
        from storagegate.storage.store import ObjectStore

        return ObjectStore.prepare(directory, durability=options.durability)

    def makeMemory(self) -> dict[str, int]:
        """
        Make the memory that workers share; blocking.

        @return: Descriptors by name.
        """
        from storagegate.core.ratelimit import makeRateMemory
        from storagegate.gateway.transports.udp.replycache import makeAnswerMemory
        from storagegate.storage.multiprocess.memory import ProcessGroupConfig

        store = os.memfd_create("storagegate-store")
        os.ftruncate(store, ProcessGroupConfig.memorySize())
        return {"rates": makeRateMemory(), "answers": makeAnswerMemory(), "store": store}

    def notifier(self) -> Notifier:
        """Make what tells the service manager how the daemon is."""
        return Notifier(self._reactor, os.environ)

    def store(self, options: StoreOptions, directory: str) -> Store:
        """
        Open the store; blocking.

        @param directory: The data directory as an absolute path.
        @raise StoreError: If it is not usable.
        """
        from storagegate.storage.metrics import MeteredFiles, watchStore
        from storagegate.storage.store import ObjectStore

        sharing = None
        link = self._link
        if link is not None:
            from storagegate.storage.multiprocess.memory import ProcessGroupConfig

            sharing = ProcessGroupConfig(
                link.index, link.count, link.memory["store"], link.broadcast, link.subscribe
            )
        meters = self.meters if self._isAsked else None
        store = ObjectStore.open(
            directory,
            self._reactor,
            durability=options.durability,
            verifyReads=options.verifyReads,
            files=None if meters is None else MeteredFiles(meters),
            sharing=sharing,
        )
        if meters is not None:
            watchStore(store, meters, directory)
        return store

    def monitor(self, configuration: Configuration) -> None:
        """
        Make what watches the requests of every room.

        @raise ConfigurationError: If an option of it is none.
        """
        if "monitoring" not in configuration.gateway:
            return
        from storagegate.daemon.gatewayservice import readMonitoringTable
        from storagegate.gateway.observers import makeTracer

        monitoring = readMonitoringTable(configuration.gateway)
        self._callLog = monitoring.logging
        self._tracer = makeTracer(monitoring, self._reactor, self.meters)

    async def stopMonitoring(self) -> None:
        """Tell what is not told yet, and send it, for two seconds at most."""
        if self._observation is not None:
            self._observation.stop()
        if self._tracer is not None:
            await self._tracer.stop()

    def door(self) -> ListenerProtocol:
        """Make a root whose room comes later."""
        from storagegate.net.http.site import DelegatingResource as RoomDoor

        return RoomDoor()

    def site(self, resource: Any) -> RequestSite:
        """Make the site of the S3 or the admin listener."""
        from storagegate.net.http.interfaces import HTTPLimits
        from storagegate.net.http.site import DelegatingResource as RoomDoor
        from storagegate.net.http.site import Site as HTTPSite

        limits = HTTPLimits(keepAliveTimeout=_S3_KEEP_ALIVE_SECONDS)
        site = HTTPSite(resource, limits, self._reactor)
        self._sites["s3" if isinstance(resource, RoomDoor) else "admin"] = site
        return site

    def listen(self, description: str, site: RequestSite) -> Deferred[IListeningPort]:
        """Open a listener."""
        from storagegate.net.endpoints import listen

        return listen(self._reactor, description, cast(IProtocolFactory, site))

    def adminResource(self, readiness: Callable[[], health.Readiness]) -> Any:
        """Make the root of the admin listener."""
        from twisted.internet.threads import deferToThreadPool

        from storagegate.net.http.message import ChannelRequest
        from storagegate.net.http.resource import CoroutineResource
        from storagegate.telemetry import prometheus
        from storagegate.telemetry.metrics import watchProcess, watchSites

        meters = self.meters
        self._isAsked = True
        self.logs.countInto(meters)
        watchProcess(meters, self._reactor)
        watchSites(meters, self._sites)

        def run(function: Any, *arguments: Any) -> Deferred[Any]:
            pool = self._reactor.getThreadPool()
            return deferToThreadPool(self._reactor, pool, function, *arguments)

        snapshot: prometheus.Snapshot = meters.snapshot
        if self._link is not None:
            snapshot = prometheus.shareMeters(self._link, meters)
        page = prometheus.MetricsPage(snapshot, run)

        async def handle(request: ChannelRequest) -> None:
            if request.path == prometheus.PATH:
                accept = request.headers.get(b"accept", b"")
                request.respond(*await page.respond(request.method, accept))
                return
            request.respond(*health.answer(request.method, request.path, readiness))

        return CoroutineResource(handle, health.describeError)

    def s3Resource(self, store: Any, options: S3Options, root: RootCredentials) -> Any:
        """Make the room behind the S3 listener's door."""
        from storagegate.s3.resource import makeS3Resource

        resource = makeS3Resource(
            store,
            region=options.region,
            s3Domain=options.domain,
            requireSignedPayload=options.requireSignedPayload,
            rootAccessKey=root.accessKey,
            rootSecretKey=root.secretKey,
            reactor=self._reactor,
        )
        self._observation = resource.observation
        if self._isAsked:
            from storagegate.s3.observers import S3Metrics

            resource.observation.add(S3Metrics(self.meters, resource.observation))
        if self._tracer is not None:
            from storagegate.s3.observers import RequestTracer

            resource.observation.add(RequestTracer(self._tracer))
            resource.nameTraces(self._tracer.correlationHeader)
        if self._callLog is not None:
            from storagegate.s3.observers import NUMBERS, TEXTS, S3Log
            from storagegate.telemetry.accesslog import AccessLog

            calls = self._callLog
            lines = AccessLog(
                calls.level,
                calls.fields,
                calls.format,
                self.logs.sink,
                numbers=NUMBERS,
                texts=TEXTS,
            )
            resource.observation.add(S3Log(lines))
        return resource

    def gateway(self, configuration: Configuration) -> GatewayService | None:
        """
        Make what watches requests, and the gateway if one of its listeners is on.

        @raise ConfigurationError: If a service or an option is none.
        """
        self.monitor(configuration)
        listeners = configuration.listeners
        if not any(listeners.transports.values()):
            return None
        return self.gatewayService(configuration)

    def gatewayService(self, configuration: Configuration) -> GatewayService:
        """
        Make the room behind the listeners of the gateway.

        @raise ConfigurationError: If a service or an option of it is none.
        """
        from storagegate.daemon.gatewayservice import DaemonGatewayService
        from storagegate.gateway.host import GatewayResources
        from storagegate.upstream.affinity import loadSecret

        shared: dict[str, Any] = {}
        link = self._link
        if link is not None:
            from storagegate.core.ratelimit import sharedRateStores
            from storagegate.core.sharedtable import SharedTable
            from storagegate.gateway.transports.udp.replycache import SharedAnswerCache

            answers = link.memory["answers"]
            shared = {
                "rateStore": sharedRateStores(link.memory["rates"]),
                "turn": link,
                "makeAnswers": lambda: SharedAnswerCache(SharedTable.attach(answers)),
            }
        resources = GatewayResources(
            meters=self.meters,
            logSink=self.logs.sink,
            tracer=self._tracer,
            affinitySecret=partial(loadSecret, os.path.abspath(configuration.store.directory)),
            **shared,
        )
        return DaemonGatewayService(configuration, self._reactor, resources, link)
