"""
The daemon with several workers: what the process that never serves does.

It binds every listener, makes what all workers share, starts them and watches over them. C{SIGHUP}
reads the configuration again and replaces the workers one by one, so that no client is refused.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

from attrs import evolve
from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate import announce
from storagegate.config import Configuration, ConfigurationError
from storagegate.configkeys import KEYS
from storagegate.credentials import CredentialsError
from storagegate.directories import makeDirectory
from storagegate.net.datagrams import bindDatagrams, reservePort
from storagegate.net.endpoints import BoundPlace, bind
from storagegate.net.workerprocess import Program, WorkerFailed
from storagegate.net.workers import Workers
from storagegate.net.workerwire import CONTROL, WorkerSetup
from storagegate.parts import Parts
from storagegate.refusal import oneLine, refusal
from storagegate.rehearsal import rehearse
from storagegate.rootkey import rootPair
from storagegate.storage.errors import StoreError

_STREAMS = ("s3", "admin", "http", "tcp")


class Supervisor(Service):
    """The service of C{twistd storagegate} with C{--workers} above one."""

    _log = Logger()

    def __init__(
        self,
        configuration: Configuration,
        load: Callable[[], Configuration],
        reactor: Any,
        parts: Parts,
        twistdOptions: Mapping[str, Any] | None = None,
    ) -> None:
        """
        @param configuration: What to start with.
        @param load: Reads the configuration again.
        @param reactor: The whole reactor.
        @param twistdOptions: The options of C{twistd} itself.
        """
        self._configuration = self._started = configuration
        self._load = load
        self._reactor = reactor
        self._parts = parts
        self._twistdOptions = twistdOptions
        self._bound: dict[str, BoundPlace] = {}
        self._datagrams: list[Any] = []
        self._reserved: Any = None
        self._addresses: dict[str, IAddress] = {}
        self._memory: dict[str, int] = {}
        self._lock: Any = None
        self._workers: Workers | None = None
        self._isStopping = False
        self._isReloading = False
        self._isReloadWanted = False
        self._signals = parts.signals(reactor.stop, self.reload)
        self._notifier = parts.notifier()

    def setServiceParent(self, parent: Any) -> None:
        """
        Become part of an application, which gets the log of this daemon.

        @raise SystemExit: If the log cannot be opened.
        """
        self._parts.logs.attach(parent, self._twistdOptions, self._configuration, self._reactor)
        super().setServiceParent(parent)

    def privilegedStartService(self) -> None:
        """
        Bind every listener but that of gRPC.

        @raise SystemExit: If one cannot be.
        """
        self._parts.tuneProcess()
        self._signals.install()
        self._reactor.callWhenRunning(self._signals.install)
        self._rehearse()
        for name in ("s3", "admin", "http", "tcp", "udp"):
            self._open(name)

    def _rehearse(self) -> None:
        """
        Have what is wrong with services and the tables of the gateway said before any port is open.

        @raise SystemExit: If something is.
        """
        configuration = self._configuration
        # It takes a second, and what nobody has written is not wrong.
        if not configuration.gateway and not configuration.services:
            return
        try:
            rehearse(lambda: self._parts.gateway(configuration), lambda: self._signals.isStopping)
        except ConfigurationError as error:
            raise refusal(str(error), self._twistdOptions) from error

    def startService(self) -> None:
        """
        Make what all workers share, and start them.

        @raise SystemExit: If the port of gRPC is taken, the data cannot be opened, or a worker
            cannot start.
        """
        Service.startService(self)
        # Here and not with the others: only processes of one user share a port that each of them
        # binds, and by now this one is the user that its workers are.
        self._open("grpc")
        directory = os.path.abspath(self._configuration.store.directory)
        try:
            makeDirectory(directory, 0o700)
            self._configuration = self._rooted(self._configuration)
            self._lock = self._parts.prepareStore(self._configuration.store, directory)
            self._memory = self._parts.makeMemory()
        except (OSError, CredentialsError, StoreError) as error:
            raise refusal(f"cannot open the data: {error}", self._twistdOptions) from error
        self._workers = Workers(
            self._reactor,
            self._program(),
            output=None if self._parts.logs.sink is not None else self._parts.logs.relay,
            changed=self._changed,
        )
        try:
            if not self._workers.start(lambda: self._signals.isStopping):
                # The reactor stops as soon as it runs.
                return
        except WorkerFailed as error:
            raise refusal(str(error), self._twistdOptions) from error
        self._log.info("data directory={directory}", directory=directory)
        announce.warnOfPlainHTTP(self._log, self._configuration, self._addresses)
        announce.logAddresses(self._log, self._addresses)
        self._log.info("{count} workers serve", count=self._configuration.workers)
        self._reactor.callWhenRunning(self._tellReady)
        self._parts.settleProcess()

    def stopService(self) -> Deferred[None]:
        """Stop the workers in order."""
        Service.stopService(self)
        return Deferred.fromCoroutine(self._stop())

    def reload(self) -> None:
        """Read the configuration again, and replace every worker by one that obeys it."""
        if self._isStopping or self._workers is None:
            return
        if self._isReloading:
            self._isReloadWanted = True
            return
        self._isReloading = True
        self._notifier.reloading()
        reloading = Deferred.fromCoroutine(self._reload(self._workers))
        reloading.addErrback(lambda failure: self._log.failure("the reload failed", failure))
        reloading.addCallback(self._reloaded)

    async def _reload(self, workers: Workers) -> None:
        before = self._configuration
        try:
            configuration = self._rooted(self._load())
            self._configuration = self._fixed(configuration)
            self._parts.logs.configure(self._configuration)
            await workers.roll(self._program(), before.shutdownGraceSeconds)
        except (ConfigurationError, CredentialsError, WorkerFailed, OSError) as error:
            self._configuration = before
            self._parts.logs.configure(before)
            if not self._isStopping:
                self._log.error("reload refused: {error}", error=oneLine(str(error)))
            return
        count = self._started.workers
        self._log.info("configuration reloaded, {count} workers replaced", count=count)
        for name in _fixedKeys(self._started, configuration):
            self._log.warn("needs a restart: {name}", name=name)

    def _reloaded(self, result: None) -> None:
        self._isReloading = False
        self._tellReady()
        if self._isReloadWanted:
            self._isReloadWanted = False
            self.reload()

    def _fixed(self, configuration: Configuration) -> Configuration:
        """Keep what is bound to the sockets and the memory that there are."""
        return evolve(
            configuration,
            listeners=self._started.listeners,
            store=self._started.store,
            workers=self._started.workers,
        )

    def _rooted(self, configuration: Configuration) -> Configuration:
        """Put the root key pair in, which is made here: not by each worker."""
        directory = os.path.abspath(configuration.store.directory)
        pair = rootPair(configuration, directory, self._addresses, self._log, self._parts.show)
        return evolve(configuration, s3=evolve(configuration.s3, root=pair))

    def _open(self, name: str) -> None:
        place = getattr(self._configuration.listeners, name)
        if place is None:
            return
        try:
            self._bind(name, place)
        except (CannotListenError, ValueError) as error:
            reason = f"cannot listen name={name} endpoint={place}: {error}"
            raise refusal(reason, self._twistdOptions) from error

    def _bind(self, name: str, place: str) -> None:
        if name in _STREAMS:
            found: list[Any] = []
            bind(self._reactor, place).addBoth(found.append)
            [bound] = found or [Failure(CannotListenError("", 0, OSError("not bound at once")))]
            if isinstance(bound, Failure):
                bound.raiseException()
            self._bound[name] = bound
            self._addresses[name] = bound.address
        elif name == "udp":
            self._datagrams = bindDatagrams(place, self._configuration.workers)
            self._addresses[name] = _address("UDP", self._datagrams[0])
        else:
            self._reserved = reservePort(place)
            self._addresses[name] = _address("TCP", self._reserved)

    def _program(self) -> Program:
        """Describe what workers run, by the present configuration."""
        descriptors: dict[int, int] = {}
        places: dict[str, str] = {}

        def inherit(descriptor: int) -> int:
            number = CONTROL + 1 + len(descriptors)
            descriptors[number] = descriptor
            return number

        for name, bound in self._bound.items():
            places[name] = bound.inherited(inherit(bound.port.fileno()))
        memory = {name: inherit(each) for name, each in self._memory.items()}
        log = self._parts.logs.handOver(inherit)
        if self._lock is not None:
            # Not read there: as long as one worker lives, the data are in use.
            inherit(self._lock.descriptor)
        if self._reserved is not None:
            places["grpc"] = announce.formatAddress(self._addresses["grpc"])
        own: list[dict[int, int]] = [{} for _ in range(self._started.workers)]
        if self._datagrams:
            number = CONTROL + 1 + len(descriptors)
            places["udp"] = f"inherited:{number}"
            own = [{number: each.fileno()} for each in self._datagrams]
        values = self._configuration.values
        root = self._configuration.s3.root
        options: dict[str, Any] = {"values": values, "gateway": self._configuration.gateway}
        options["log"] = log
        if root is not None:
            options["root"] = [root.accessKey, root.secretKey]
        return Program(
            command=[sys.executable, "-m", "storagegate.worker"],
            environment=_environment(),
            descriptors=descriptors,
            own=own,
            setup=WorkerSetup(0, self._started.workers, places, memory, options),
        )

    def _changed(self) -> None:
        """Tell the service manager how many workers there are."""
        if not self._isStopping and self._workers is not None:
            self._notifier.status(self._state(self._workers))

    def _tellReady(self) -> None:
        if not self._isStopping and self._workers is not None:
            self._notifier.ready(self._state(self._workers))

    def _state(self, workers: Workers) -> str:
        text = announce.servingText(self._addresses)
        return f"{text}; {workers.ready} of {self._started.workers} workers"

    async def _stop(self) -> None:
        self._isStopping = True
        grace = self._configuration.shutdownGraceSeconds
        self._log.info("stopping, {grace} s for what is in flight", grace=grace)
        self._notifier.stopping(f"stopping, {grace} s for what is in flight")
        # Closed here first: what the kernel has accepted is taken by the workers as they close.
        for bound in self._bound.values():
            bound.port.stopListening()
        if self._workers is not None:
            await self._workers.stop(grace)
        for each in (*self._datagrams, *filter(None, [self._reserved])):
            each.close()
        self._notifier.close()
        self._log.info("stopped")


def _address(kind: Literal["TCP", "UDP"], bound: Any) -> IAddress:
    host, port, *rest = bound.getsockname()
    return IPv6Address(kind, host, port, *rest) if rest else IPv4Address(kind, host, port)


def _environment() -> dict[str, str]:
    """Give a worker's variables: it imports what this process imports."""
    path = [item for item in sys.path if item]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _fixedKeys(old: Configuration, new: Configuration) -> list[str]:
    """Name the keys that differ and that new workers do not change."""
    fixed = (key.name for key in KEYS if key.isShared)
    return [name for name in fixed if old.values.get(name) != new.values.get(name)]
