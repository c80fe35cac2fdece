"""
The gateway of the daemon: the user's services, or the reference services, on all transports. The
tables C{[gateway.*]} of the configuration file configure it::

    [gateway.websocket]
    allowedOrigins = ["https://app.example.com"]

    [gateway.authentication.providers.apikey]
    validate = "mymodule:validate"

A function is given as C{"module:name"}. Ports and interfaces belong to the keys of the listeners.
This module is imported only if a listener of the gateway is enabled; the modules of a single
transport are imported when it opens.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IAddress
from twisted.logger import Logger

from storagegate.core.context import RequestContext
from storagegate.core.definitions import DefinitionError, ServiceDefinition
from storagegate.core.invoker import CallCredentials, InvocationObserver
from storagegate.core.options import OptionError
from storagegate.daemon.config import Configuration, ConfigurationError, collectErrors, raiseErrors
from storagegate.daemon.configkeys import OWN_SERVICES
from storagegate.daemon.health import Readiness
from storagegate.daemon.s3guest import S3Guest, besideObjects, guestErrors
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.host import GatewayResources
from storagegate.gateway.options import readOptions
from storagegate.gateway.transports.registry import (
    GRPC,
    HTTP,
    Transport,
    cutHidingTransports,
    findTransport,
    listenerTransports,
    maxItemBytes,
    transportNames,
    transports,
)
from storagegate.net.endpoints import HELD, isLoopback

if TYPE_CHECKING:
    from storagegate.net.ipc import WorkerIPC

USERS_FILE = "users.sqlite"
"""The database of users in the data directory."""

_PROTOS = {"user.UserService": "UserService", "storagegate.Storage": "Storage"}
"""The names of the reference services in their protos."""

_INTERFACE = re.compile(r":interface=((?:[^:\\]|\\.)*)")


UNSERVED = (
    "UserService is not served: it needs no credentials, and other machines can reach {listeners}."
    " To serve it anyway, set service."
)
ANONYMOUS = "other machines can call these methods over {listeners} without credentials: {methods}"
"""Log messages about listeners that are not on loopback."""

_log = Logger()


class NamingError(ValueError):
    """A name in the configuration cannot be loaded; the text is one line with the name."""


def loadObject(name: str) -> Any:
    """
    Import the object that a name in the configuration refers to.

    @param name: C{module:name}; the name may contain dots.
    @raise NamingError: If the module cannot be imported, or has no such name.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise NamingError(f"{name}: cannot import {module}: {kind}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NamingError(f"{name}: {module} has no {path}") from None
    return found


@contextmanager
def importingServices() -> Iterator[None]:
    """
    Import from the working directory, as the daemon does.

    Services may print during their import: it goes to standard error.
    """
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.path.remove(here)


_FUNCTIONS = frozenset(
    {
        "transformRequest",
        "transformResponse",
        "routeMessage",
        "formatResponse",
        "parseMessage",
        "transformError",
        "spanAttributes",
        "validate",
        "extractToken",
    }
)
"""Keys whose values are functions; C{extractToken} may be a table of functions by protocol."""

_TRUSTED = "trustedProxies"

LISTENER_OPTIONS = frozenset({"port", "hostname", "address"})
"""Options that the tables must not contain: the key of the listener sets them."""


def configureGateway(gateway: ProtocolGateway, tables: Mapping[str, Any]) -> None:
    """
    Apply the tables of the configuration file to a gateway.

    @param gateway: A gateway that has not started.
    @param tables: The tables C{[gateway.*]}, by name.
    @raise ConfigurationError: If tables or keys are unknown, or values are invalid: with all
        mistakes.
    """
    configure: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        **{name: partial(gateway.configure, name) for name in transportNames()},
        "authentication": gateway.configureAuthentication,
        "errorHandling": gateway.configureErrorHandling,
        "rateLimit": gateway.configureRateLimit,
        "monitoring": gateway.configureMonitoring,
        "discovery": gateway.configureServiceDiscovery,
    }
    errors: list[str] = []
    for name, table in tables.items():
        if name == _TRUSTED:
            try:
                gateway.settings = readOptions(gateway.settings, {name: table})
            except OptionError as error:
                errors.append(f"gateway.{name}: {error}")
            continue
        if name not in configure:
            known = ", ".join(sorted((*configure, _TRUSTED)))
            errors.append(f"gateway.{name}: unknown key; the keys are {known}")
            continue
        if isinstance(table, Mapping):
            for key in sorted(LISTENER_OPTIONS.intersection(table)):
                errors.append(f"gateway.{name}.{key}: set the key {name} of the listener instead")
            table = {key: each for key, each in table.items() if key not in LISTENER_OPTIONS}
        with collectErrors(errors):
            _apply(name, table, configure[name])
    raiseErrors(errors)


def addServices(gateway: ProtocolGateway, names: Iterable[str]) -> None:
    """
    Import the services of the configuration and add them to a gateway.

    @param names: C{MODULE:NAME} each; the reference services are omitted.
    @raise ConfigurationError: If some cannot be imported or are invalid: with all mistakes.
    """
    errors: list[str] = []
    for name in names:
        if name in OWN_SERVICES:
            continue
        try:
            gateway.addService(loadObject(name))
        except NamingError as error:
            errors.append(f"service: {error}")
        except DefinitionError as error:
            errors.append(f"service: {name}: {error}")
    raiseErrors(errors)


def gatewayErrors(
    services: Sequence[str], tables: Mapping[str, Any], isOnS3: bool = False
) -> list[str]:
    """
    Return all mistakes of services and tables, whether or not a listener of the gateway is enabled.

    @param services: The value of the key C{service}.
    @param tables: The tables C{[gateway.*]}, by name.
    @param isOnS3: The value of the key C{gatewayOnS3}.
    """
    errors: list[str] = []
    if services or tables or isOnS3:
        gateway = ProtocolGateway({"protocols": ()})
        with collectErrors(errors):
            addServices(gateway, services)
        with collectErrors(errors):
            configureGateway(gateway, tables)
        with collectErrors(errors):
            checkDiscoveryFiles(gateway)
        if isOnS3:
            errors += guestErrors(gateway.settings)
    return errors


def checkDiscoveryFiles(gateway: ProtocolGateway) -> None:
    """
    Check the options of discovery that depend on each other, and the files that they name.

    @raise ConfigurationError: If they are invalid.
    """
    options = gateway.discovery
    if options is None:
        return
    from storagegate.upstream.options import checkDiscovery, tlsTables

    try:
        checkDiscovery(options)
        for table, tls in tlsTables(options).items():
            if tls.caFile is not None or tls.certFile is not None:
                from storagegate.net.tls import checkFiles

                checkFiles(tls, table)
    except OptionError as error:
        raise ConfigurationError(f"gateway.discovery: {error}") from error


def anonymousMethods(services: Iterable[ServiceDefinition]) -> list[str]:
    """
    Return the methods that may be called without credentials; C{SERVICE.*} stands for all methods
    of a service.

    A service that authorises its own calls has no such methods.
    """
    found: list[str] = []
    for service in services:
        if service.authentication.authorize is not None:
            continue
        names = [name for name, each in service.methods.items() if service.isAnonymous(each)]
        if len(names) == len(service.methods):
            names = ["*"]
        found += (f"{service.name}.{name}" for name in names)
    return found


def readMonitoringTable(tables: Mapping[str, Any]) -> Any:
    """
    Read the table of monitoring, which applies to the S3 listener as well.

    @param tables: The tables C{[gateway.*]}, by name.
    @return: The C{MonitoringOptions}; C{None} if the table is absent.
    @raise ConfigurationError: If a key is unknown, or a value is invalid.
    """
    from storagegate.gateway.monitoring import readMonitoring

    if "monitoring" not in tables:
        return None
    return _apply("monitoring", tables["monitoring"], readMonitoring)


def _apply(name: str, table: Any, read: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Pass a table to a reader, with functions in place of their names; errors name the table."""
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"gateway.{name}: expected a table")
    errors: list[str] = []
    result = None
    try:
        result = read(_resolved(table, errors))
    except OptionError as error:
        errors += error.errors
    except DefinitionError as error:
        errors.append(str(error))
    raiseErrors([f"gateway.{name}: {each}" for each in errors])
    return result


def _resolved(table: Mapping[str, Any], errors: list[str]) -> dict[str, Any]:
    """Replace the names of functions with the functions; append unknown names to the errors."""

    def load(name: str) -> Any:
        try:
            return loadObject(name)
        except NamingError as error:
            errors.append(str(error))
            # Stands for the function while the other options are read.
            return errors.append

    resolved: dict[str, Any] = {}
    for key, value in table.items():
        if key in _FUNCTIONS and isinstance(value, str):
            value = load(value)
        elif key in _FUNCTIONS and isinstance(value, Mapping):
            value = {
                name: load(each) if isinstance(each, str) else each for name, each in value.items()
            }
        elif key == "handleStreaming" and isinstance(value, Mapping):
            value = {name: load(each) for name, each in value.items()}
        elif isinstance(value, Mapping):
            value = _resolved(value, errors)
        resolved[key] = value
    return resolved


class DaemonGatewayService:
    """The listeners of the gateway and the services behind them."""

    def __init__(
        self,
        configuration: Configuration,
        reactor: Any,
        surroundings: GatewayResources | None = None,
        link: "WorkerIPC | None" = None,
    ) -> None:
        """
        @param configuration: The configuration with the services, tables and listeners.
        @param surroundings: The resources that the gateway shares with the daemon.
        @param link: The connection of a worker to the other workers, which share its listeners.
        @raise ConfigurationError: If services or options are invalid: with all mistakes.
        """
        listeners = configuration.listeners
        self._reactor = reactor
        self._configuration = configuration
        named = configuration.services
        self._own = [name for name in OWN_SERVICES if not named or name in named]
        self._closers: list[Callable[[], Any]] = []
        self._credentials: Any = None
        self._link = link
        self._httpAddress: Any = None
        self._registration: Any = None
        # The gateway on the S3 listener, and its address.
        self.guest: S3Guest | None = None
        self._s3Address: IAddress | None = None
        rows = transports()
        options: dict[str, dict[str, Any]] = {}
        for row in rows:
            options[row.name] = dict(row.daemonOptions)
            if row.inherit == "reuseport":
                options[row.name]["reusePort"] = link is not None
        served = [row.name for row in rows if self._isServed(row)]
        self._gateway = ProtocolGateway(
            {name: given for name, given in options.items() if given} | {"protocols": served},
            surroundings=surroundings,
        )
        # Added once the store is open.
        self._gateway.awaited = frozenset(self._own)
        errors: list[str] = []
        with collectErrors(errors):
            addServices(self._gateway, named)
        if self._own and GRPC.name in served:
            self._useProtos()
        with collectErrors(errors):
            configureGateway(self._gateway, configuration.gateway)
        with collectErrors(errors):
            checkDiscoveryFiles(self._gateway)
        if listeners.gatewayOnS3:
            errors += guestErrors(self._gateway.settings)
        raiseErrors(errors)
        self._checkRegistration(listeners.of(HTTP.name))

    def _isServed(self, row: Transport) -> bool:
        """Return whether a transport is served, on a listener of its own or another one's."""
        listeners = self._configuration.listeners
        if listeners.of(row.shares or row.name) is not None:
            return True
        if not listeners.gatewayOnS3:
            return False
        if row.name == GRPC.name:
            table = self._configuration.gateway.get(GRPC.name)
            return isinstance(table, Mapping) and table.get("onHTTP") is True
        return HTTP.name in (row.name, row.shares)

    def _useProtos(self) -> None:
        """Serve the reference services over gRPC with their protos."""
        from storagegate.rpc.protos import ourProto

        for name in ("user.proto", "storage.proto"):
            self._gateway.protos.update(ourProto(name).services)
        served = {proto: name for proto, name in _PROTOS.items() if name in self._own}
        self._gateway.configureGRPC(services=served, transformResponse=_fitted)

    def open(self, name: str, endpoint: str) -> IAddress:
        """
        Open a listener; requests are served once the reactor runs.

        The port of a connection-oriented transport is only bound; its C{beginListening} opens it.

        @param name: The name of a transport with its own listener.
        @param endpoint: An endpoint or C{HOST:PORT}, as the transport requires.
        @raise CannotListenError: If the address is not available.
        @raise OptionError: If options contradict each other.
        """
        found: list[Any] = []
        isStream = findTransport(name).inherit == "stream"
        place = f"{HELD}{endpoint}" if isStream else endpoint
        self._gateway.start(self._reactor).open(name, place).addBoth(found.append)
        if not found:
            raise OptionError(f"the listener {name} did not open synchronously")
        [port] = found
        if hasattr(port, "raiseException"):
            port.raiseException()
        address: IAddress = port.getHost()
        if name == HTTP.name:
            self._httpAddress = address
        return address

    def join(self, site: Any, address: IAddress) -> None:
        """
        Serve HTTP, WebSocket and, with C{onHTTP}, gRPC on the S3 listener: see L{guest}.

        @param site: Its L{Site<storagegate.net.http.site.Site>}.
        @raise DefinitionError: If a configured route names an unknown method.
        """
        resource = self._gateway.start(self._reactor).join(site)
        if site.openCall is not None:
            site.openCall = besideObjects(site.openCall)
        self.guest = S3Guest(resource, self._gateway.settings)
        self._s3Address = address

    def attachStore(
        self, store: Any, root: Any, region: str, directory: str, encryption: Any = None
    ) -> None:
        """
        Add the enabled reference services, and register with discovery.

        @param encryption: The encryption of the store's objects, see L{openDomain
            <storagegate.objects.domain.openDomain>}.
        """
        addresses = {name: port.getHost() for name, port in self.ports.items()}
        if self._s3Address is not None:
            addresses["s3"] = self._s3Address
        exposed = [name for name, address in addresses.items() if not isLoopback(address)]
        # The first of several workers warns for all of them.
        warn = _log.warn if self._link is None or not self._link.index else _log.debug
        # Anonymous callers could create, list and delete users.
        isElsewhere = "UserService" in self._gateway.services
        if exposed and not (self._configuration.services or isElsewhere):
            self._own.remove("UserService")
            warn(UNSERVED, listeners=", ".join(exposed))
        if "UserService" in self._own:
            self._addUserService(directory)
        if "Storage" in self._own:
            self._addStorageService(store, root, region, encryption)
        methods = anonymousMethods(self._gateway.services.values())
        listeners = [name for name in exposed if not self._configuration.requiresClient(name)]
        if methods and listeners:
            warn(ANONYMOUS, methods=", ".join(methods), listeners=", ".join(listeners))
        self._register()

    def _addUserService(self, directory: str) -> None:
        from storagegate.services.users import makeUserService
        from storagegate.services.usertable import SQLiteUserStore

        users = SQLiteUserStore(os.path.join(directory, USERS_FILE), self._reactor)
        self._closers.append(users.close)
        self._add(makeUserService(users, bus=self._link))

    def _addStorageService(self, store: Any, root: Any, region: str, encryption: Any) -> None:
        from storagegate.objects.accounts import AccessKeyStore
        from storagegate.services.objects import makeStorageService, storageAuthenticate

        credentials = AccessKeyStore(store.accessKeys, root.accessKey, root.secretKey)
        self._credentials = credentials
        keys = _StorageKeys(storageAuthenticate(credentials))
        self._gateway.authentication.ownKeys["Storage"] = keys
        limits, cutHiding = maxItemBytes(), cutHidingTransports()
        self._add(
            makeStorageService(
                store,
                credentials,
                region,
                maxItemBytes=limits,
                cutHiding=cutHiding,
                ownership=self._configuration.s3.ownership,
                encryption=encryption,
            )
        )

    def _add(self, service: ServiceDefinition) -> None:
        """Add a service, unless discovery provides its instances."""
        if service.name not in self._gateway.services:
            self._gateway.addKnown(service)

    def warnings(self) -> Mapping[str, str | None]:
        """Return problems that need an operator's attention while calls are served."""
        found = {"discovery": self._gateway.discoveryProblem}
        if self._registration is not None:
            found["registration"] = self._registration.problem
        return found

    @property
    def ports(self) -> Mapping[str, Any]:
        """Return the open ports, by the name of the listener."""
        own = [row.name for row in listenerTransports()]
        return {name: port for name, port in self._gateway.ports.items() if name in own}

    def observe(self, observer: InvocationObserver) -> None:
        """Add an observer of calls."""
        self._gateway.observe(observer)

    def onReadinessChange(self, readiness: Readiness) -> None:
        """
        Update the gRPC health service.

        C{Storage} is serving while the store has no problem, other services until the daemon stops.
        The server as a whole has the state of C{/readyz}.
        """
        isServing = readiness.status != "draining"
        isStored = isServing and not any(readiness.parts.values())
        self._gateway.setHealth(
            {name: isStored if name == "Storage" else isServing for name in self._gateway.services},
            readiness.status == "ok",
        )

    @property
    def gateway(self) -> ProtocolGateway:
        """Return the gateway with its services and options."""
        return self._gateway

    @property
    def registration(self) -> Any:
        """
        Return the L{Registration<storagegate.upstream.registration.Registration>} of the services;
        C{None} if they are not registered with discovery.
        """
        return self._registration

    def _checkRegistration(self, endpoint: str | None) -> None:
        """
        Check the registration of this daemon with discovery before a listener opens.

        @param endpoint: The endpoint of the HTTP listener.
        @raise ConfigurationError: If it is invalid.
        """
        options = self._gateway.discovery
        if options is None or options.register is None:
            return
        from storagegate.upstream.registration import checkRegistration

        try:
            checkRegistration(options, self._servedHere(), _interface(endpoint))
        except OptionError as error:
            raise ConfigurationError(f"gateway.discovery: {error}") from error

    def _servedHere(self) -> tuple[str, ...]:
        """Return the names of the services that this daemon serves itself."""
        names = dict.fromkeys((*self._gateway.services, *self._own))
        return tuple(name for name in names if name not in self._gateway.discovery.services)

    def _register(self) -> None:
        """Register the services with discovery, if configured."""
        options = self._gateway.discovery
        if options is None or options.register is None:
            return
        from storagegate.upstream.registration import makeRegistration

        self._registration = makeRegistration(
            options,
            self._servedHere(),
            getattr(self._httpAddress, "host", None),
            getattr(self._httpAddress, "port", None),
            self._reactor,
            # Processes with one address need different ids: one may end while the others serve.
            str(os.getpid()) if self._link is not None else "",
        )
        self._reactor.callWhenRunning(self._registration.start)

    def setRootCredentials(self, root: Any) -> None:
        """Replace the root key pair; the previous pair is invalid from now on."""
        if self._credentials is not None:
            self._credentials.setRoot(root.accessKey, root.secretKey)

    async def leave(self) -> None:
        """End the registration with discovery, so that clients are not sent to a closed port."""
        registration, self._registration = self._registration, None
        if registration is not None:
            await registration.stop()

    async def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> None:
        """
        Wait for calls, cancel them after the grace period, and close the resources of the services.

        @param graceSeconds: Limit of the time for calls in flight.
        @param idleGraceSeconds: Time after which idle HTTP connections are closed.
        """
        await self.leave()
        await self._gateway.stop(graceSeconds * 1000, idleGraceSeconds * 1000)
        closers, self._closers = self._closers, []
        for close in closers:
            await close()


class _StorageKeys:
    """Authenticates C{ACCESSKEY:SECRETKEY}, given as an API key or as a token."""

    def __init__(self, prove: Callable[[str], Any]) -> None:
        self._prove = prove

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Return the credential of a call."""
        return credentials.apiKey or credentials.token

    def verify(self, token: str, context: RequestContext) -> Any:
        """Return the user of a key; C{None} if it is invalid."""
        return self._prove(token)


def _fitted(result: Any, method: str) -> Any:
    """Remove the field that the message CreateMultipleUsersResponse does not have."""
    if method == "UserService.CreateMultipleUsers" and "errors" in result:
        return {key: value for key, value in result.items() if key != "errors"}
    return result


def _interface(endpoint: str | None) -> str | None:
    """Return the interface of an endpoint; C{None} if it has no port."""
    if endpoint is None or endpoint.startswith("unix:"):
        return None
    match = _INTERFACE.search(endpoint)
    return "" if match is None else match[1].replace("\\:", ":")
