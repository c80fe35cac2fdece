"""
The components of the daemon, imported on demand.

This is the only module that calls the constructors of the store, the sites and the services.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.heldbytes import PROCESS_BUDGET
from storagegate.daemon import health
from storagegate.daemon.adminresource import AdminResource
from storagegate.daemon.config import (
    Configuration,
    ListenerOptions,
    StoreOptions,
    collectErrors,
    raiseErrors,
)
from storagegate.daemon.logs import Logs
from storagegate.daemon.process import freezeHeap, tuneProcess
from storagegate.net.heap import HeapTrimmer
from storagegate.net.process import SignalHandlers
from storagegate.net.systemd import Notifier
from storagegate.objects.encryption.options import EncryptionOptions
from storagegate.objects.issuedkeys import KeyPair
from storagegate.storage.errors import StoreError
from storagegate.storage.files import DirectoryLock
from storagegate.storage.layout import MASTER_KEYS
from storagegate.storage.records import KEYED
from storagegate.telemetry.metrics import MetricsRegistry

if TYPE_CHECKING:
    # Imported when the component is made.
    from storagegate.cluster.counts import Counts
    from storagegate.cluster.options import ClusterOptions
    from storagegate.console.monitor import ConsoleMonitor
    from storagegate.console.usagehistory import UsageHistory
    from storagegate.core.ratelimit import RateStoreMaker
    from storagegate.daemon.gatewayservice import DaemonGatewayService
    from storagegate.daemon.startscreen import StartScreen
    from storagegate.net.http.site import Site
    from storagegate.net.ipc import WorkerIPC
    from storagegate.objects.encryption.interfaces import IMasterKeys
    from storagegate.objects.identities.entities import OIDCProvider
    from storagegate.storage.cluster.admin import ClusterSecrets
    from storagegate.storage.consolerecords import IConsoleRecords
    from storagegate.storage.store import ObjectStore

# S3 clients keep a connection between two commands. A reverse proxy keeps its own for a minute, and
# should close it first.
_S3_KEEP_ALIVE_SECONDS = 75

# Limit of the damaged objects that a worker reports to the others.
_MOST_NAMED = 1000


def _presign(*arguments: Any) -> str:
    """Make a presigned URL of S3, whose signatures an idle daemon does not load."""
    from storagegate.s3.auth.presigning import presign

    return presign(*arguments)


class Components:
    """
    Makes the components of a process.

    @ivar meters: The metrics of this process.
    @ivar logs: The log of this process.
    @ivar encryption: The encryption of the store's objects, which all front ends share.
    """

    _log = Logger()

    def __init__(self, reactor: Any, link: "WorkerIPC | None" = None) -> None:
        """
        @param reactor: The reactor of the process.
        @param link: The connection of a worker to the other workers; C{None} without workers.
        """
        self._reactor = reactor
        self._link = link
        self.meters = MetricsRegistry()
        self.logs = Logs()
        self._callLog: Any = None
        self._observation: Any = None
        self._gateway: DaemonGatewayService | None = None
        self._monitor: ConsoleMonitor | None = None
        self._sites: dict[str, Any] = {}
        # Metrics are collected only if the admin listener is enabled.
        self._isMetered = False
        self._hasConsole = False
        self._tracer: Any = None
        self._cluster: tuple[ClusterOptions, ClusterSecrets] | None = None
        self._counts: Counts | None = None
        # Whether a gateway uses the counts.
        self._isCounting = False
        self._lock: DirectoryLock | None = None
        self._masterKeys: IMasterKeys | None = None
        self.encryption = EncryptionOptions()

    tuneProcess = staticmethod(tuneProcess)

    def configure(self, configuration: Configuration) -> None:
        """Apply the process options that a reload may change."""
        self.logs.configure(configuration)
        PROCESS_BUDGET.limit = configuration.heldBytes

    def show(self, text: str) -> None:
        """Print text that must not be in a log file, if the process has a standard output."""
        # twistd has replaced sys.stdout with its log.
        if sys.__stdout__ is not None:
            print(text, file=sys.__stdout__, flush=True)

    def hasScreen(self, twistdOptions: Mapping[str, Any] | None, options: Configuration) -> bool:
        """
        Return whether the start ends with the start screen: only on a terminal that also shows the
        log.

        @param twistdOptions: The options of C{twistd} itself.
        @param options: The configuration; the JSON log format excludes the screen.
        """
        if twistdOptions is None or options.logFormat == "json" or self._link is not None:
            return False
        if not twistdOptions.get("nodaemon") or twistdOptions.get("syslog"):
            return False
        if twistdOptions.get("logfile") not in (None, "", "-"):
            return False
        stream = sys.__stdout__
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"

    def showScreen(self, screen: "StartScreen") -> None:
        """Print the start screen."""
        self.show(screen.text(not os.environ.get("NO_COLOR")).rstrip("\n"))

    def freezeHeap(self) -> None:
        """Freeze the heap after the start, and return memory to the system periodically."""
        freezeHeap()
        trimmer = HeapTrimmer(self._reactor)
        trimmer.start()
        PROCESS_BUDGET.onRefused = trimmer.hasten

    def signals(
        self,
        stop: Callable[[], object],
        reload: Callable[[], object],
        abort: Callable[[], object],
    ) -> SignalHandlers:
        """Make the handlers of the process's signals, see L{SignalHandlers}."""
        return SignalHandlers(self._reactor, stop, reload, self._link is not None, abort)

    def joinCluster(self, options: "ClusterOptions") -> None:
        """
        Check the catalog and the blobs of a cluster before the listeners open. Blocks.

        @raise StoreError: If they cannot be used; the text gives the reason in one line.
            C{StoreBusy} if the catalog does not respond.
        """
        from storagegate.cluster.counts import Counts, readCounts
        from storagegate.cluster.initialisation import checkCluster

        self._cluster = (options, checkCluster(options, self._reactor, needsBlobs=False))
        found = self._cluster[1]
        self.logs.redactor.hide(found.secretKey, *options.secrets(found.servers))
        make = readCounts(options.counts, options.catalog)
        self._counts = Counts(make, self._reactor, self.meters)

    def closeCounts(self) -> None:
        """Close the connection of the cluster-wide counts, after the gateway and the store."""
        if self._counts is not None:
            self._counts.close()

    def warnings(self) -> Mapping[str, str | None]:
        """
        Return why calls cannot be counted cluster-wide, if they should be, and why objects can be
        neither encrypted nor opened.
        """
        found = {} if self._counts is None else {"counts": self._counts.failure}
        if self._masterKeys is not None:
            found["masterKeys"] = self._masterKeys.problem
        return found

    async def closeEncryption(self) -> None:
        """Forget the master keys, after the front ends and before the store."""
        if self._masterKeys is not None:
            await self._masterKeys.close()

    def clusterRoot(self) -> KeyPair | None:
        """Return the root key pair of the cluster; C{None} if the store is embedded."""
        if self._cluster is None:
            return None
        found = self._cluster[1]
        return KeyPair(found.accessKey, found.secretKey)

    def lockData(self, directory: str) -> None:
        """
        Lock the data directory before its content is read or written. Blocks.

        In a worker this does nothing: its supervisor holds the lock.

        @param directory: The data directory, which exists.
        @raise StoreLocked: If another process holds the lock.
        """
        if self._link is None:
            self._lock = DirectoryLock.take(directory)

    def prepareStore(
        self, options: StoreOptions, directory: str, isCluster: bool = False
    ) -> DirectoryLock:
        """
        Prepare the store before any worker opens it. Blocks. L{lockData} must have been called.

        @param directory: The data directory.
        @param isCluster: Whether the store is a cluster's; the data directory is then only locked.
        @return: The lock of the data directory, which this process and its workers hold.
        @raise StoreError: If the store is not usable.
        """
        lock = self._lock
        assert lock is not None
        if isCluster:
            os.set_inheritable(lock.descriptor, True)
            return lock
        from storagegate.storage.embedded.opening import prepareStore

        return prepareStore(directory, durability=options.durability, lock=lock)

    def makeMemory(self, isCluster: bool = False) -> dict[str, int]:
        """
        Create the shared memory of the workers. Blocks.

        @param isCluster: Whether the store is a cluster's; the workers then share no store memory.
        @return: Descriptors by name.
        """
        from storagegate.core.ratelimit import makeRateMemory
        from storagegate.gateway.transports.udp.replycache import makeAnswerMemory

        memory = {"rates": makeRateMemory(), "answers": makeAnswerMemory()}
        if not isCluster:
            from storagegate.storage.embedded.sharedmemory import ProcessGroupConfig

            memory["store"] = os.memfd_create("storagegate-store")
            os.ftruncate(memory["store"], ProcessGroupConfig.memorySize())
        return memory

    def notifier(self) -> Notifier:
        """Make the notifier of the service manager."""
        return Notifier(self._reactor, os.environ)

    def store(self, options: StoreOptions, directory: str) -> "ObjectStore":
        """
        Open the store. Blocks. L{lockData} must have been called.

        @param directory: The data directory as an absolute path.
        @raise StoreError: If the store is not usable.
        """
        from storagegate.storage.clock import TOPIC, StoreClock
        from storagegate.storage.metrics import MeteredFiles, watchStore

        clock = StoreClock()
        if self._link is not None:
            self._link.subscribe(TOPIC, lambda payload: clock.confirm())
        meters = self.meters if self._isMetered else None
        arguments: dict[str, Any] = {
            "durability": options.durability,
            "verifyReads": options.verifyReads,
            "files": None if meters is None else MeteredFiles(meters),
            "clock": clock,
        }
        if self._cluster is None:
            store = self._embeddedStore(directory, arguments)
        else:
            store = self._clusterStore(directory, self._cluster[0], arguments)
        if meters is not None:
            watchStore(store, meters, directory, options.bucketMetrics)
        if self._link is not None:
            # Only the process that scrubs knows them, but any worker may serve the page.
            objects = lambda: sorted(store.scrubber.corruptObjects)[:_MOST_NAMED]  # noqa: E731
            self._link.answer(
                "damaged", lambda _: [(bucket, key.hex()) for bucket, key in objects()]
            )
        self._encrypt(store, options, directory)
        self._scanLifecycles(store, options)
        if self._hasConsole:
            self._sampleUsage(store, directory)
        return store

    def _encrypt(self, store: "ObjectStore", options: StoreOptions, directory: str) -> None:
        """Set up the encryption of objects. Master keys are not read before they are needed."""
        path = os.path.abspath(options.masterKeys or os.path.join(directory, MASTER_KEYS))

        def openMasterKeys() -> "IMasterKeys":
            if self._masterKeys is None:
                from storagegate.objects.encryption.masterkeys.opening import MasterKeyLocation

                location = MasterKeyLocation(path, options.vault, options.keyCacheSeconds)
                self._masterKeys = location.open(store.catalog, self._reactor, store.pool)
            return self._masterKeys

        async def check() -> None:
            # An idle daemon without encrypted objects loads nothing.
            isUsed = options.encryptAll or options.vault is not None
            isUsed = isUsed or await store.pool.run(os.path.exists, path)
            if isUsed or await store.catalog.bucketsWith(KEYED, "", 1):
                await openMasterKeys().check()

        def failed(failure: Failure) -> None:
            if failure.check(StoreError):
                # The node has just lost its catalog. The first use checks the keys again.
                self._log.warn(
                    "the master keys were not checked: {error}", error=failure.getErrorMessage()
                )
            else:
                self._log.failure("checking the master keys failed", failure)

        def begin() -> None:
            Deferred.fromCoroutine(check()).addErrback(failed)

        self.encryption = EncryptionOptions(
            openMasterKeys,
            options.encryptAll,
            options.keyCacheSeconds,
            blocksCustomerKeys=options.blockCustomerKeys,
        )
        if self._isMetered:
            from storagegate.objects.encryption.metrics import watchEncryption

            watchEncryption(self.encryption, self.meters)
        self._reactor.callWhenRunning(begin)

    def _embeddedStore(self, directory: str, arguments: Mapping[str, Any]) -> "ObjectStore":
        from storagegate.storage.embedded.opening import openStore

        sharing = None
        link = self._link
        if link is not None:
            from storagegate.storage.embedded.sharedmemory import ProcessGroupConfig

            sharing = ProcessGroupConfig(
                link.index, link.count, link.memory["store"], link.broadcast, link.subscribe
            )
        return openStore(directory, self._reactor, sharing=sharing, lock=self._lock, **arguments)

    def _clusterStore(
        self, directory: str, options: "ClusterOptions", arguments: Mapping[str, Any]
    ) -> "ObjectStore":
        from storagegate.cluster.initialisation import blobsBackEnd
        from storagegate.cluster.metrics import watchNode
        from storagegate.cluster.node import ClusterNode
        from storagegate.cluster.shards import ShardedNode
        from storagegate.storage.cluster.interfaces import IShardedCatalog
        from storagegate.storage.node import IStoreNode
        from storagegate.storage.store import ObjectStore

        def makeNode(context: Any, catalog: Any, blobs: Any) -> IStoreNode:
            made: Any
            if IShardedCatalog.providedBy(catalog):
                made = ShardedNode(context, catalog, blobs)
                nodes = list(made.nodes.values())
            else:
                made = ClusterNode(context, catalog, blobs)
                nodes = [made]
            if self._isMetered:
                watchNode(nodes, self.meters)
            node: IStoreNode = made
            return node

        store = ObjectStore.open(
            directory,
            self._reactor,
            catalog="postgresql",
            blobs=blobsBackEnd(options),
            options={
                "catalog": options.catalog,
                "blobs": options.blobs,
                "node": f"{os.uname().nodename}:{os.getpid()}",
                "leaseSeconds": options.leaseSeconds,
                "synchronous": options.synchronous,
            },
            node=makeNode,
            inlineLimit=options.inlineLimit,
            **arguments,
        )
        assert self._counts is not None
        expiry = self._counts.expiry()
        if expiry is not None:
            store.runInOne("counts", expiry)
        if self._isCounting:
            self._counts.open()
        return store

    def _scanLifecycles(self, store: "ObjectStore", options: StoreOptions) -> None:
        """Remove objects that are due by lifecycle rules, in one of the processes."""
        from storagegate.objects.expiry import LifecycleScanner, watchScanner
        from storagegate.objects.lifecycle import Calendar

        calendar = Calendar(options.lifecycleDaySeconds * 1000, store.correctedMs)
        scanner = LifecycleScanner(store, calendar, self._reactor, time.time)
        store.runInOne("lifecycles", scanner)
        if self._isMetered:
            watchScanner(scanner, self.meters)

    def _sampleUsage(self, store: "ObjectStore", directory: str) -> None:
        """
        Record the usage of the store once an hour in one of the processes, for the console.

        The nodes of a cluster do not: their data directories are not shared.

        @param directory: The data directory.
        """
        if self._cluster is not None:
            return
        from storagegate.console.usagesampler import UsageSampler

        def makeHistory() -> "UsageHistory":
            # An idle daemon does not load it.
            from storagegate.console.usagehistory import UsageHistory

            return UsageHistory(directory, store.pool, time.time)

        store.runInOne("usage", UsageSampler(store, makeHistory, self._reactor, time.time))

    def monitor(self, configuration: Configuration) -> None:
        """
        Make the tracer and the access log of all listeners from the table C{gateway.monitoring}.

        @param configuration: The configuration; without the table this does nothing.
        @raise ConfigurationError: If an option is invalid.
        """
        if "monitoring" not in configuration.gateway:
            return
        from storagegate.daemon.gatewayservice import readMonitoringTable
        from storagegate.gateway.monitoring import makeTracer

        monitoring = readMonitoringTable(configuration.gateway)
        self._callLog = monitoring.logging
        self._tracer = makeTracer(monitoring, self._reactor, self.meters)
        if self._tracer is not None:
            self._tracer.redact = self.logs.redactor.redact

    async def stopMonitoring(self) -> None:
        """Write the pending lines and export the pending spans; takes at most two seconds."""
        if self._observation is not None:
            self._observation.stop()
        if self._monitor is not None:
            self._monitor.stop()
        if self._tracer is not None:
            await self._tracer.stop()

    def site(self, name: str, listeners: ListenerOptions, resource: Any = None) -> "Site":
        """
        Make the site of a listener.

        @param name: C{s3} or C{admin}.
        @param listeners: The options for HTTP/2.
        @param resource: The root resource from L{adminResource}; the S3 resource is set when the
            store is open.
        """
        from storagegate.net.http.interfaces import HTTPLimits
        from storagegate.net.http.site import Site

        limits = HTTPLimits(
            keepAliveTimeout=_S3_KEEP_ALIVE_SECONDS,
            http2=listeners.http2,
            http2MaxStreams=listeners.http2MaxStreams,
        )
        site = Site(resource, limits, self._reactor)
        if name == "s3":
            from storagegate.s3.errors import describeRejection

            site = Site(resource, limits, self._reactor, describeRejection)
        self._sites[name] = site
        return site

    def listen(self, description: str, site: "Site") -> Deferred[IListeningPort]:
        """
        Bind a listener at an endpoint such as C{tcp:9000}; C{beginListening} of the port opens it.
        """
        from storagegate.net.endpoints import HELD, listen

        return listen(self._reactor, f"{HELD}{description}", site)

    def checkAddress(self, place: str) -> None:
        """
        Check that a listener can be bound later.

        @param place: C{HOST:PORT}.
        @raise CannotListenError: If the address is in use.
        """
        from storagegate.net.endpoints import reservePort

        reservePort(place).close()

    def adminResource(
        self,
        configuration: Configuration,
        readiness: Callable[[], health.Readiness],
        makeConsole: Callable[[], Any],
    ) -> Any:
        """
        Make the root of the admin listener.

        @param configuration: The configuration; it enables the console.
        @param readiness: Returns the current readiness, for the health pages.
        @param makeConsole: See L{AdminResource}.
        """
        from twisted.internet.threads import deferToThreadPool

        from storagegate.net.forwarded import compileTrust
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

        values = configuration.values
        gate = health.MetricsGate(values.get("metricsToken", ""), self._reactor)
        trust = compileTrust(configuration.s3.trustedProxies)

        async def handle(request: ChannelRequest) -> None:
            isOpen = await gate.check(
                request.headers.get(b"authorization"), request.clientAddress(trust)
            )
            if request.path == prometheus.PATH:
                if gate.isClosed and not isOpen:
                    request.respond(*health.UNAUTHORISED)
                    return
                accept = request.headers.get(b"accept", b"")
                request.respond(*await page.respond(request.method, accept))
                return
            details = gate.details(isOpen)
            request.respond(*health.respond(request.method, request.path, readiness, details))

        plain = CoroutineResource(handle, health.describeError)
        self._hasConsole = bool(values["console"])
        make = makeConsole if self._hasConsole else None
        if make is not None and self._link is not None:
            # The first request to the console may reach another worker.
            self._link.subscribe("console", lambda message: self._madeMonitor().received(message))
        return AdminResource(plain, make, values.get("consoleUrl", ""))

    def _madeMonitor(self) -> "ConsoleMonitor":
        """Return the console's monitor in this process; it is made with the first request."""
        if self._monitor is None:
            from storagegate.console.monitor import ConsoleMonitor

            self._monitor = ConsoleMonitor(self._reactor, self._link)
            self._monitor.tap.redact = self.logs.redactor.redact
            if self._observation is not None:
                self._observation.add(self._monitor.tap)
            if self._gateway is not None:
                self._gateway.observe(self._monitor.tap)
        return self._monitor

    def _makeRates(self) -> "RateStoreMaker | None":
        """Return the maker of rate limit stores for all processes; C{None} for a single process."""
        if self._counts is not None:
            return self._counts.rateLimitStore
        if self._link is None:
            return None
        from storagegate.core.ratelimit import sharedRateStores

        return sharedRateStores(self._link.memory["rates"])

    def console(
        self, configuration: Configuration, store: "ObjectStore", root: KeyPair, daemon: Any
    ) -> Any:
        """
        Make the console.

        @param daemon: An L{IDaemon<storagegate.console.services.IDaemon>}.
        """
        from storagegate.console.app import Console
        from storagegate.console.guard import Guard
        from storagegate.console.services import ConsoleOptions, ConsoleServices
        from storagegate.core.ratelimit import MemoryRateLimitStore
        from storagegate.objects.accounts import AccessKeyStore
        from storagegate.objects.domain import openDomain

        values, s3 = configuration.values, configuration.s3
        options = ConsoleOptions(
            values.get("consoleUrl", ""),
            values.get("s3Url", ""),
            values["consoleClearText"],
            s3.trustedProxies,
            configuration.signIn,
        )
        accounts = AccessKeyStore(store.accessKeys, root.accessKey, root.secretKey)
        services = ConsoleServices(
            reactor=self._reactor,
            store=store,
            objects=openDomain(
                store, accounts, s3.region, time.time, s3.ownership, self.encryption
            ),
            accounts=accounts,
            region=s3.region,
            meters=self.meters,
            link=self._link,
            monitor=self._madeMonitor(),
            daemon=daemon,
            options=options,
            records=self._consoleRecords(store, daemon.dataDirectory),
            now=time.time,
            makeRates=self._makeRates() or (lambda name, ms: MemoryRateLimitStore(ms)),
            presign=_presign,
            # All nodes have the same root pair.
            sealKey=sha256(b"storagegate console sign-in\0" + root.secretKey.encode()).digest(),
        )
        return Console(services, Guard(options))

    def _consoleRecords(self, store: "ObjectStore", directory: str) -> "IConsoleRecords":
        """
        Return the store of the console's sessions: the catalog of a cluster, for all nodes, or else
        a file, for all workers.

        @param directory: The data directory.
        """
        if self._cluster is not None:
            catalog: Any = store.catalog
            found: IConsoleRecords = catalog.consoleRecords
            return found
        from storagegate.storage.embedded.consolerecords import EmbeddedConsoleRecords

        return EmbeddedConsoleRecords(directory, store.pool)

    def serveS3(
        self,
        site: Any,
        store: Any,
        configuration: Configuration,
        root: KeyPair,
        readiness: Callable[[], health.Readiness],
    ) -> None:
        """
        Let the S3 listener's site serve a store; requests in flight keep their resource.

        @param configuration: The options of S3, and the issuers whose tokens STS accepts.
        @param readiness: Returns the current readiness, for health checks.
        """
        from storagegate.s3.resource import makeS3Resource

        options, signIn = configuration.s3, configuration.signIn

        @cache
        def providers() -> "Mapping[str, Sequence[OIDCProvider]]":
            # With the first token of an issuer: PyJWT and the client of issuers take megabytes.
            from storagegate.console.issueroptions import webIdentityProviders

            return webIdentityProviders(signIn)

        resource = makeS3Resource(
            store,
            region=options.region,
            s3Domain=options.domain,
            requireSignedPayload=options.requireSignedPayload,
            customerKeysOverHTTP=options.customerKeysOverHTTP,
            ownership=options.ownership,
            encryption=self.encryption,
            trustedProxies=options.trustedProxies,
            rootAccessKey=root.accessKey,
            rootSecretKey=root.secretKey,
            reactor=self._reactor,
            lifecycleDaySeconds=options.lifecycleDaySeconds,
            providers=lambda account: providers().get(account, ()) if signIn else (),
        )
        # Any client may connect to this listener, so it gives no details.
        resource.healthCheck = partial(
            health.respond, readiness=readiness, details=health.NO_DETAILS
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
        if self._monitor is not None:
            resource.observers.add(self._monitor.tap)
        site.trust = resource.services.trust
        guest = None if self._gateway is None else self._gateway.guest
        site.resource = resource if guest is None else guest.beside(resource, resource.isBucketHost)

    def gateway(self, configuration: Configuration) -> "DaemonGatewayService | None":
        """
        Make the tracer and the access log, and the gateway if one of its listeners is enabled.

        @param configuration: The listeners determine whether a gateway is made; the tables
            configure it.
        @raise ConfigurationError: If services or options are invalid: with all mistakes. They are
            also checked if no listener is enabled.
        """
        errors: list[str] = []
        with collectErrors(errors):
            self.monitor(configuration)
        with collectErrors(errors):
            listeners = configuration.listeners
            if listeners.gatewayOnS3 or any(listeners.transports.values()):
                self._gateway = self.gatewayService(configuration)
            elif configuration.gateway or configuration.services:
                from storagegate.daemon.gatewayservice import gatewayErrors

                errors += gatewayErrors(configuration.services, configuration.gateway)
        raiseErrors(errors)
        return self._gateway

    def gatewayService(self, configuration: Configuration) -> "DaemonGatewayService":
        """
        Make the gateway's service.

        @raise ConfigurationError: If a service or an option is invalid.
        """
        from storagegate.daemon.gatewayservice import DaemonGatewayService
        from storagegate.gateway.host import GatewayResources

        def affinitySecret() -> bytes:
            # Imported with the first proxied service.
            from storagegate.upstream.affinity import loadSecret

            if self._cluster is not None:
                # A cookie from one node is valid on all nodes.
                return self._cluster[1].affinity
            return loadSecret(os.path.abspath(configuration.store.directory))

        shared: dict[str, Any] = {}
        link = self._link
        if link is not None:
            from storagegate.core.sharedtable import SharedTable
            from storagegate.gateway.transports.udp.replycache import SharedReplyCache

            answers = link.memory["answers"]
            shared = {
                "turn": link,
                "makeReplies": lambda: SharedReplyCache(SharedTable(answers)),
            }
        if self._counts is not None:
            self._isCounting = True
            shared["makeReplies"] = partial(self._counts.replyCache, now=self._reactor.seconds)
        resources = GatewayResources(
            meters=self.meters,
            logSink=self.logs.accessSink,
            tracer=self._tracer,
            affinitySecret=affinitySecret,
            rateStore=self._makeRates(),
            **shared,
        )
        return DaemonGatewayService(configuration, self._reactor, resources, link)
