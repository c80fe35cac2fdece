"""
The service of C{twistd storagegate}: the base class of L{Daemon<storagegate.daemon.daemon.Daemon>},
which serves, and L{Supervisor<storagegate.daemon.supervisor.Supervisor>}, which runs workers.

Both own the log and the signals of the process and start in two steps: C{privilegedStartService}
before C{twistd} drops its privileges, C{startService} after that. They reload their configuration
on C{SIGHUP}, and shut down gracefully.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import frozen
from msgspec import Struct
from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger, LogLevel

from storagegate.core.addresses import schemeOf
from storagegate.daemon.components import Components
from storagegate.daemon.config import Configuration, ConfigurationError
from storagegate.daemon.listenerfile import (
    ListenerRecord,
    RunningDaemon,
    ownCertificates,
    removeListeners,
    writeListeners,
)
from storagegate.daemon.process import startError
from storagegate.daemon.rootcredentials import CredentialsError, loadOrCreate
from storagegate.gateway.transports.registry import listenerTransports
from storagegate.net.endpoints import (
    ENCRYPTED,
    endAsyncioTasks,
    formatAddress,
    isLoopback,
)
from storagegate.net.process import oneLine
from storagegate.objects.issuedkeys import KeyPair
from storagegate.storage.errors import StoreBusy, StoreError
from storagegate.storage.files import makeDirectory
from storagegate.version import __version__

if TYPE_CHECKING:
    # Imported on a terminal only.
    from storagegate.daemon.startscreen import NewKeyPair, StartScreen

ROOT_FILE = "root-credentials"
"""The file of the root key pair in the data directory."""

_JOIN_SECONDS = 1.0
"""The interval between two attempts to reach a catalog that does not respond at the start."""

# Wildcard addresses cannot be connected to on every system.
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def clientURL(description: str, address: IAddress) -> str | None:
    """
    Return the URL of a listener for clients on this machine; C{None} for a UNIX socket.

    @param description: The endpoint of the listener.
    @param address: The bound address of the listener; a wildcard address becomes the loopback
        address.
    """
    if not isinstance(address, IPv4Address | IPv6Address):
        return None
    host = _WILDCARDS.get(address.host, address.host)
    if ":" in host:
        host = f"[{host}]"
    scheme = schemeOf(description.startswith(ENCRYPTED))
    return f"{scheme}://{host}:{address.port}"


def isExposed(description: str, address: IAddress) -> bool:
    """
    Return whether a listener can be reached from other machines without encryption.

    @param description: The endpoint; its type determines whether the listener encrypts.
    @param address: The address that the listener is bound to.
    """
    return not (isLoopback(address) or description.startswith(ENCRYPTED))


def servingText(addresses: Mapping[str, IAddress]) -> str:
    """Format the listeners in one line for the service manager."""
    served = (f"{name} {formatAddress(address)}" for name, address in addresses.items())
    return f"serving {', '.join(served)}" if addresses else "serving nothing"


def firstKeyText(
    pair: KeyPair, region: str, url: str | None, path: str, consoleURL: str | None = None
) -> str:
    """
    Format the generated root key pair as the commands that configure aws-cli.

    @param region: The region of signatures.
    @param url: The URL of the S3 listener, if it is enabled.
    @param path: The file of the pair.
    @param consoleURL: The URL of the console, if it is enabled.
    """
    lines = [
        f"generated the root key pair, shown only once and stored in {path}:",
        f"aws configure set aws_access_key_id {pair.accessKey}",
        f"aws configure set aws_secret_access_key {pair.secretKey}",
        f"aws configure set region {region}",
    ]
    if url is not None:
        lines.append(f"aws configure set endpoint_url {url}")
    if consoleURL is not None:
        lines.append(f"sign in to the console with the pair: {consoleURL}")
    return "\n".join(lines)


class ProcessSetup(Struct, frozen=True):
    """
    The arguments of the service of a process.

    @ivar configuration: The configuration at the start.
    @ivar load: Reads the configuration again.
    @ivar reactor: Provides all interfaces of a reactor.
    @ivar twistdOptions: The options of C{twistd} itself.
    @ivar flags: The flags of the command line, by key; C{config} is the path of the file.
    """

    configuration: Configuration
    load: Callable[[], Configuration]
    reactor: Any
    parts: Components
    twistdOptions: Mapping[str, Any] | None = None
    flags: Mapping[str, Any] = {}


@frozen
class ReloadResult:
    """
    The result of a reload.

    @ivar applied: The changed keys that the reload has applied.
    @ivar needRestart: The keys that differ from the start and require a restart.
    @ivar error: Why the reload was refused; empty if it was not.
    @ivar replacing: The number of workers that are being replaced to apply it.
    """

    applied: Sequence[str] = ()
    needRestart: Sequence[str] = ()
    error: str = ""
    replacing: int = 0


class ProcessService(Service):
    """
    The service of a process. Subclasses implement C{stopNow}, C{reload}, C{_stop} and
    C{_readyText}.
    """

    _log = Logger()

    def __init__(self, setup: ProcessSetup) -> None:
        self._configuration = self._started = setup.configuration
        self._load = setup.load
        self._reactor = setup.reactor
        self._parts = setup.parts
        self._twistdOptions = setup.twistdOptions
        self._flags = setup.flags
        self._isStopping = False
        self._addresses: dict[str, IAddress] = {}
        self._hasScreen = self._parts.hasScreen(setup.twistdOptions, setup.configuration)
        self._newKeyPair: NewKeyPair | None = None
        self._signals = self._parts.signals(self.stopNow, self.reload, self.abort)
        self._notifier = self._parts.notifier()

    def stopNow(self) -> None:
        """Start to shut down, unless a shutdown is in progress."""
        raise NotImplementedError

    def reload(self) -> ReloadResult:
        """Reload the configuration, and apply the changes that a running daemon can apply."""
        raise NotImplementedError

    def abort(self) -> None:
        """End the processes that serve for this one. Called in the handler of a signal."""

    async def _stop(self) -> None:
        """Stop accepting, and wait for requests in flight."""
        raise NotImplementedError

    def _readyText(self) -> str | None:
        """Return the description of the listeners; C{None} while no requests are served."""
        raise NotImplementedError

    def setServiceParent(self, parent: Any) -> None:
        """
        Join an application, which gets the log of this process.

        @param parent: The application that C{twistd} has made.
        @raise SystemExit: If the log cannot be opened.
        """
        self._parts.logs.attach(parent, self._twistdOptions, self._configuration, self._reactor)
        system = os.uname()
        self._note(
            "storagegate {version} python={python} platform={platform} data directory={directory}",
            version=__version__,
            python=sys.version.split()[0],
            # Avoids the module platform, which an idle daemon would keep in memory.
            platform="-".join((system.sysname, system.release, system.machine)),
            directory=self._directory(),
        )
        super().setServiceParent(parent)

    def privilegedStartService(self) -> None:
        """
        Install the signal handlers, and bind the listeners that may need root.

        @raise SystemExit: If a listener cannot be bound.
        """
        # First: the collection of garbage below loses the exception of Python's own SIGINT handler.
        self._signals.install()
        self._parts.tuneProcess()
        self._parts.configure(self._configuration)

    def stopService(self) -> Deferred[None]:
        """Shut down gracefully."""
        Service.stopService(self)
        return Deferred.fromCoroutine(self._stop()).addBoth(endAsyncioTasks)

    def _refusal(self, reason: object) -> SystemExit:
        """Make the exception of a failed start."""
        text = reason if isinstance(reason, ConfigurationError) else str(reason)
        return startError(text, self._twistdOptions)

    def _cannotListen(self, name: str, endpoint: str, reason: object) -> SystemExit:
        """Make the exception of a start that failed because a listener cannot open."""
        return self._refusal(f"cannot listen name={name} endpoint={endpoint}: {reason}")

    def _directory(self) -> str:
        # A reload does not change the data directory.
        return os.path.abspath(self._started.store.directory)

    def _joinCluster(self) -> None:
        """
        Check the cluster, if one is configured, before any port is open. Wait for a catalog that
        does not respond.

        @raise ConfigurationError: If the cluster cannot be used.
        """
        options = self._configuration.cluster
        if options is None:
            return
        end = time.monotonic() + options.connectWait
        isTold = False
        while True:
            try:
                self._parts.joinCluster(options)
                return
            except StoreError as error:
                left = end - time.monotonic()
                if not isinstance(error, StoreBusy) or left <= 0 or self._signals.isStopping:
                    raise ConfigurationError(f"cannot open the store: {error}") from error
                text = f"waiting up to {left:.0f} s for the cluster: {error}"
            if not isTold:
                isTold = True
                self._log.warn("{text}", text=text)
            self._notifier.starting(text, left)
            time.sleep(min(left, _JOIN_SECONDS))

    @contextmanager
    def _openingData(self) -> Iterator[str]:
        """
        Create the data directory if it is absent, lock it, and convert errors while its files are
        opened.

        The lock is taken first, so that a second daemon cannot change the directory.

        @raise SystemExit: If the data cannot be used.
        """
        directory = self._directory()
        try:
            makeDirectory(directory, 0o700)
            self._parts.lockData(directory)
            # A killed process has left it, and process ids repeat in containers.
            removeListeners(directory)
            yield directory
        except (OSError, CredentialsError, StoreError) as error:
            raise self._refusal(f"cannot open the data: {error}") from error

    def _rootPair(self, configuration: Configuration) -> KeyPair:
        """
        Return the root key pair: the configured pair, else the cluster's, else the pair in the data
        directory, which is generated if absent.

        @raise CredentialsError: If the file of the pair cannot be used.
        """
        options = configuration.s3
        if options.root is not None:
            return options.root
        shared = self._parts.clusterRoot()
        if shared is not None:
            return shared
        path = os.path.join(self._directory(), ROOT_FILE)
        pair, made = loadOrCreate(path)
        if made:
            url = self._clientURL(configuration, "s3")
            values = configuration.values
            admin = self._clientURL(configuration, "admin")
            console = values.get("consoleUrl") or (admin and f"{admin}/console/")
            console = console if values["console"] else None
            self._note("generated the root key pair path={path}", path=path)
            if self._hasScreen:
                from storagegate.daemon.startscreen import NewKeyPair

                self._newKeyPair = NewKeyPair(pair, path, url)
            # JSON output is parsed as a log, which must not contain the pair.
            elif configuration.logFormat != "json":
                self._parts.show(firstKeyText(pair, options.region, url, path, console))
        return pair

    def _clientURL(self, configuration: Configuration, name: str) -> str | None:
        """Return the URL of a listener for clients on this machine; C{None} without a URL."""
        description = configuration.endpoint(name)
        if description is None or name not in self._addresses:
            return None
        return clientURL(description, self._addresses[name])

    def _note(self, format: str, **values: object) -> None:
        """Log a message that the start screen repeats; with the screen its level is debug."""
        self._log.emit(LogLevel.debug if self._hasScreen else LogLevel.info, format, **values)

    def _publishListeners(self) -> None:
        """Write the listeners into the data directory, for commands on this machine."""
        if self._isStopping:
            return
        # A reload may change the region. It does not open other listeners.
        values = self._started.values
        try:
            found = RunningDaemon(
                os.getpid(),
                self._configuration.s3.region,
                str(values.get("s3Url") or ""),
                bool(values["console"]),
                {name: self._listenerRecord(name) for name in self._addresses},
            )
            writeListeners(self._directory(), found)
        except OSError as error:
            # Commands then use their own configuration. A full disk must not prevent a start.
            self._log.warn(
                "cannot write the listeners into the data directory: {reason}",
                reason=error.strerror,
            )

    def _listenerRecord(self, name: str) -> ListenerRecord:
        """
        Describe an open listener.

        @raise OSError: If its certificates cannot be listed.
        """
        configuration = self._started
        speaksHTTP = all(row.hasStatus for row in listenerTransports() if row.name == name)
        return ListenerRecord(
            formatAddress(self._addresses[name]),
            self._clientURL(configuration, name) if speaksHTTP else None,
            ownCertificates(configuration.endpoint(name) or ""),
        )

    def _logServing(self) -> None:
        """Log the data directory, the listeners and warnings, or show the start screen."""
        warnings = self._exposures()
        if self._hasScreen:
            self._parts.showScreen(self._startScreen(warnings))
            return
        self._log.info("data directory={directory}", directory=self._directory())
        for text in warnings:
            self._log.warn("{text}", text=text)
        for name, address in self._addresses.items():
            text = formatAddress(address)
            self._log.info("listening name={name} address={address}", name=name, address=text)

    def _exposures(self) -> list[str]:
        """Return warnings about secrets that travel in clear text."""
        configuration = self._configuration
        warnings = []
        description = configuration.listeners.s3
        if description is not None and isExposed(description, self._addresses["s3"]):
            warnings.append(
                "the s3 listener is reachable from other machines without TLS: requests with "
                "x-storage-secret-key send the secret in clear text; use an ssl: or tls: endpoint"
            )
        clear = [
            f"{name} {formatAddress(address)}"
            for name, address in self._addresses.items()
            if isExposed(configuration.endpoint(name) or "", address)
            and not configuration.tlsTable(name)
        ]
        if clear:
            warnings.append(f"reachable from other machines without TLS: {', '.join(clear)}")
        return warnings

    def _startScreen(self, warnings: Sequence[str]) -> "StartScreen":
        """Return the start screen."""
        from storagegate.daemon.startscreen import StartScreen

        configuration = self._configuration
        directory = self._directory()
        disk = os.statvfs(directory)
        admin = self._clientURL(configuration, "admin")
        console = f"{admin}/console/" if admin and configuration.values["console"] else admin
        places = {"S3": self._place("s3"), "Console": console}
        for row in listenerTransports():
            address = self._addresses.get(row.name)
            # A URL only of listeners that speak HTTP.
            if address is None or row.hasStatus:
                places[row.title] = self._place(row.name)
            else:
                places[row.title] = formatAddress(address)
        return StartScreen(
            __version__,
            places,
            directory,
            disk.f_bavail * disk.f_frsize,
            self._newKeyPair,
            warnings,
        )

    def _place(self, name: str) -> str | None:
        """Return the URL of a listener, or its address without one; C{None} if it is disabled."""
        address = self._addresses.get(name)
        if address is None:
            return None
        return self._clientURL(self._configuration, name) or formatAddress(address)

    def _notifyReady(self) -> None:
        """Notify the service manager that requests are served."""
        text = None if self._isStopping else self._readyText()
        if text is not None:
            self._notifier.ready(text)

    def _notifyStopping(self) -> int:
        """Log the stop and notify the service manager; return the grace period in seconds."""
        grace = self._configuration.shutdownGraceSeconds
        self._log.info("stopping, requests in flight have {grace} s", grace=grace)
        self._notifier.stopping(f"stopping, requests in flight have {grace} s")
        return grace

    def _refusedReload(self, error: Exception) -> ReloadResult:
        """Log why a reload was refused."""
        text = oneLine(str(error))
        self._log.error("reload refused: {error}", error=text)
        return ReloadResult(error=text)

    def _logUnchanged(self, names: Iterable[str]) -> None:
        """Log the changed keys that a reload does not apply."""
        for name in names:
            self._log.warn("needs a restart: {name}", name=name)
