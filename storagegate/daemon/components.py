"""
The components of the daemon, each imported when it is needed.

This is the only module that calls the constructors of the store, the sites and the services.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort

from storagegate.core.heldbytes import PROCESS_BUDGET
from storagegate.daemon import health
from storagegate.daemon.config import Configuration, S3Options, StoreOptions
from storagegate.daemon.logs import Logs
from storagegate.daemon.process import SignalHandlers, freezeHeap, tuneProcess
from storagegate.daemon.rootcredentials import RootCredentials
from storagegate.daemon.systemd import Notifier
from storagegate.net.heap import HeapTrimmer
from storagegate.storage.files import DirectoryLock
from storagegate.telemetry.metrics import MetricsRegistry

if TYPE_CHECKING:
    # Each is imported when it is made.
    from storagegate.daemon.gatewayservice import DaemonGatewayService
    from storagegate.net.http.site import Site
    from storagegate.net.ipc import WorkerIPC
    from storagegate.storage.store import ObjectStore

# S3 clients keep a connection between two commands, and a reverse proxy keeps its own for a minute:
# the proxy should close it first.
_S3_KEEP_ALIVE_SECONDS = 75


class Components:
    """
    Makes the components of a process.

    @ivar meters: The metrics of this process.
    @ivar logs: The log of this process.
    """

    def __init__(self, reactor: Any, link: "WorkerIPC | None" = None) -> None:
        """
        @param reactor: The reactor of the process.
        @param link: The connection of a worker to the others; C{None} without workers.
        """
        self._reactor = reactor
        self._link = link
        self.meters = MetricsRegistry()
        self.logs = Logs()
        self._callLog: Any = None
        self._observation: Any = None
        self._sites: dict[str, Any] = {}
        # Metrics are collected only if the admin listener is enabled.
        self._isMetered = False
        self._tracer: Any = None

    tuneProcess = staticmethod(tuneProcess)

    def configure(self, configuration: Configuration) -> None:
        """Apply the options of the process that a reload may change."""
        self.logs.configure(configuration)
        PROCESS_BUDGET.limit = configuration.heldBytes

    def show(self, text: str) -> None:
        """Print text that must not be in a log file, if the process has a standard output."""
        # twistd has replaced sys.stdout by its log.
        if sys.__stdout__ is not None:
            print(text, file=sys.__stdout__, flush=True)

    def freezeHeap(self) -> None:
        """Settle the heap after the start, and give memory back to the system from now on."""
        freezeHeap()
        HeapTrimmer(self._reactor).start()

    def signals(self, stop: Callable[[], object], reload: Callable[[], object]) -> SignalHandlers:
        """Make the handlers of the process's signals, see L{SignalHandlers}."""
        return SignalHandlers(self._reactor, stop, reload, isWorker=self._link is not None)

    def prepareStore(self, options: StoreOptions, directory: str) -> DirectoryLock:
        """
        Prepare the store before any worker opens it. Blocks.

        @param directory: The data directory, made if it is absent.
        @return: The lock of the data directory, which this process and the workers hold.
        @raise StoreError: If it is not usable.
        """
        from storagegate.storage.store import ObjectStore

        return ObjectStore.prepare(directory, durability=options.durability)

    def makeMemory(self) -> dict[str, int]:
        """
        Make the memory that workers share. Blocks.

        @return: Descriptors by name.
        """
        from storagegate.core.ratelimit import makeRateMemory
        from storagegate.gateway.transports.udp.replycache import makeAnswerMemory
        from storagegate.storage.sharedmemory import ProcessGroupConfig

        store = os.memfd_create("storagegate-store")
        os.ftruncate(store, ProcessGroupConfig.memorySize())
        return {"rates": makeRateMemory(), "answers": makeAnswerMemory(), "store": store}

    def notifier(self) -> Notifier:
        """Make the notifier of the service manager."""
        return Notifier(self._reactor, os.environ)

    def store(self, options: StoreOptions, directory: str) -> "ObjectStore":
        """
        Open the store. Blocks.

        @param directory: The data directory as an absolute path.
        @raise StoreError: If it is not usable.
        """
        from storagegate.storage.metrics import MeteredFiles, watchStore
        from storagegate.storage.store import ObjectStore

        sharing = None
        link = self._link
        if link is not None:
            from storagegate.storage.sharedmemory import ProcessGroupConfig

            sharing = ProcessGroupConfig(
                link.index, link.count, link.memory["store"], link.broadcast, link.subscribe
            )
        meters = self.meters if self._isMetered else None
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
        self._scanLifecycles(store, options)
        return store

    def _scanLifecycles(self, store: "ObjectStore", options: StoreOptions) -> None:
        """Remove what is due by the rules of buckets, in one of the processes."""
        from storagegate.s3.expiry import LifecycleScanner, watchScanner
        from storagegate.s3.lifecycle import Calendar

        calendar = Calendar(options.lifecycleDaySeconds * 1000)
        scanner = LifecycleScanner(store, calendar, self._reactor, time.time)
        store.runInOne(scanner)
        if self._isMetered:
            watchScanner(scanner, self.meters)

    def monitor(self, configuration: Configuration) -> None:
        """
        Make the tracer and the access log of all listeners from the table C{gateway.monitoring}.

        @param configuration: Nothing is made if the table is absent.
        @raise ConfigurationError: If an option is invalid.
        """
        if "monitoring" not in configuration.gateway:
            return
        from storagegate.daemon.gatewayservice import readMonitoringTable
        from storagegate.gateway.monitoring import makeTracer

        monitoring = readMonitoringTable(configuration.gateway)
        self._callLog = monitoring.logging
        self._tracer = makeTracer(monitoring, self._reactor, self.meters)

    async def stopMonitoring(self) -> None:
        """Write the pending lines and export the pending spans, for two seconds at most."""
        if self._observation is not None:
            self._observation.stop()
        if self._tracer is not None:
            await self._tracer.stop()

    def site(self, name: str, resource: Any = None) -> "Site":
        """
        Make the site of a listener.

        @param name: C{s3} or C{admin}.
        @param resource: The root, from L{adminResource}; the S3 one is set when the store is open.
        """
        from storagegate.net.http.interfaces import HTTPLimits
        from storagegate.net.http.site import Site

        limits = HTTPLimits(keepAliveTimeout=_S3_KEEP_ALIVE_SECONDS)
        site = Site(resource, limits, self._reactor)
        if name == "s3":
            from storagegate.s3.errors import describeRejection

            site = Site(resource, limits, self._reactor, describeRejection)
        self._sites[name] = site
        return site

    def listen(self, description: str, site: "Site") -> Deferred[IListeningPort]:
        """Open a listener at an endpoint such as C{tcp:9000}."""
        from storagegate.net.endpoints import listen

        return listen(self._reactor, description, site)

    def adminResource(self, readiness: Callable[[], health.Readiness]) -> Any:
        """
        Make the root of the admin listener.

        @param readiness: Returns the present state, for the health pages.
        """
        from twisted.internet.threads import deferToThreadPool

        from storagegate.net.http.message import ChannelRequest
        from storagegate.net.http.site import CoroutineResource
        from storagegate.telemetry import prometheus
        from storagegate.telemetry.metrics import watchProcess, watchSites

        meters = self.meters
        self._isMetered = True
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
            request.respond(*health.respond(request.method, request.path, readiness))

        return CoroutineResource(handle, health.describeError)

    def serveS3(self, site: Any, store: Any, options: S3Options, root: RootCredentials) -> None:
        """Let the site of the S3 listener serve a store; requests in flight keep what they have."""
        from storagegate.s3.resource import makeS3Resource

        resource = makeS3Resource(
            store,
            region=options.region,
            s3Domain=options.domain,
            requireSignedPayload=options.requireSignedPayload,
            ownership=options.ownership,
            trustedProxies=options.trustedProxies,
            rootAccessKey=root.accessKey,
            rootSecretKey=root.secretKey,
            reactor=self._reactor,
            lifecycleDaySeconds=options.lifecycleDaySeconds,
        )
        self._observation = resource.observers
        if self._isMetered:
            from storagegate.s3.observers import S3Metrics

            resource.observers.add(S3Metrics(self.meters, resource.observers))
        if self._tracer is not None:
            from storagegate.s3.observers import RequestTracer

            resource.observers.add(RequestTracer(self._tracer))
            resource.setTraceHeader(self._tracer.correlationHeader)
        if self._callLog is not None:
            from storagegate.s3.observers import NUMBERS, TEXTS, S3Log
            from storagegate.telemetry.accesslog import AccessLog

            log, sink = self._callLog, self.logs.accessSink
            lines = AccessLog(
                log.level,
                log.fields,
                log.format,
                sink,
                numbers=NUMBERS,
                texts=TEXTS,
                hasMembers=True,
            )
            resource.observers.add(S3Log(lines))
        site.resource, site.trust = resource, resource.services.trust

    def gateway(self, configuration: Configuration) -> "DaemonGatewayService | None":
        """
        Make the tracer and the access log, and the gateway if one of its listeners is enabled.

        @param configuration: The listeners decide whether the gateway is made, its tables how.
        @raise ConfigurationError: If a service or an option is invalid.
        """
        self.monitor(configuration)
        isServed = any(configuration.listeners.transports.values())
        return self.gatewayService(configuration) if isServed else None

    def gatewayService(self, configuration: Configuration) -> "DaemonGatewayService":
        """
        Make the gateway's service.

        @raise ConfigurationError: If a service or an option is invalid.
        """
        from storagegate.daemon.gatewayservice import DaemonGatewayService
        from storagegate.gateway.host import GatewayResources

        def affinitySecret() -> bytes:
            # Balancing is imported with the first proxied service.
            from storagegate.upstream.affinity import loadSecret

            return loadSecret(os.path.abspath(configuration.store.directory))

        shared: dict[str, Any] = {}
        link = self._link
        if link is not None:
            from storagegate.core.ratelimit import sharedRateStores
            from storagegate.core.sharedtable import SharedTable
            from storagegate.gateway.transports.udp.replycache import SharedReplyCache

            answers = link.memory["answers"]
            shared = {
                "rateStore": sharedRateStores(link.memory["rates"]),
                "turn": link,
                "makeReplies": lambda: SharedReplyCache(SharedTable(answers)),
            }
        resources = GatewayResources(
            meters=self.meters,
            logSink=self.logs.accessSink,
            tracer=self._tracer,
            affinitySecret=affinitySecret,
            **shared,
        )
        return DaemonGatewayService(configuration, self._reactor, resources, link)
