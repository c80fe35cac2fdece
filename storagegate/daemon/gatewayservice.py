"""
The gateway of the daemon: the user's services, or the reference services, on every transport, with
the tables C{[gateway.*]} of the configuration file::

    [gateway.websocket]
    allowedOrigins = ["https://app.example.com"]

    [gateway.authentication.providers.apikey]
    validate = "mymodule:validate"

A function is C{"module:name"}. Ports and interfaces are the listeners' own keys. This module is
imported only if a listener of the gateway is enabled; what only one of them needs, when it is
opened.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress

from storagegate.core.context import RequestContext
from storagegate.core.definitions import DefinitionError, ServiceDefinition
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import OptionError
from storagegate.daemon.config import Configuration, ConfigurationError
from storagegate.daemon.health import Readiness
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.host import GatewayResources
from storagegate.gateway.transports.registry import (
    GRPC,
    HTTP,
    listenerTransports,
    maxItemBytes,
    transportNames,
    transports,
)
from storagegate.net.ipc import WorkerIPC

USERS_FILE = "users.sqlite"
"""Where in the data directory the users are."""

_PROTOS = {"user.UserService": "UserService", "storagegate.Storage": "Storage"}
"""The names of the reference services in their protos."""


_INTERFACE = re.compile(r":interface=((?:[^:\\]|\\.)*)")


class NamingError(ValueError):
    """There is no such thing; the text is one line that names it."""


def loadObject(name: str) -> Any:
    """
    Find what a name of the configuration stands for.

    @param name: C{module:name}; the name may have dots.
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
"""Keys whose values are functions; the last one may be a table of them by protocol."""

LISTENER_OPTIONS = frozenset({"port", "hostname", "address"})
"""Options that the file does not have: where a wire is, the key of its listener says."""


def configureGateway(gateway: ProtocolGateway, tables: Mapping[str, Any]) -> None:
    """
    Give a gateway what the file says.

    @raise ConfigurationError: If a table or a key is not known, or a value is not right.
    """
    configure: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        **{name: partial(gateway.configure, name) for name in transportNames()},
        "authentication": gateway.configureAuthentication,
        "errorHandling": gateway.configureErrorHandling,
        "rateLimit": gateway.configureRateLimit,
        "monitoring": gateway.configureMonitoring,
        "discovery": gateway.configureServiceDiscovery,
    }
    for name, table in tables.items():
        if name not in configure:
            raise ConfigurationError(
                f"gateway.{name}: unknown key; there are {', '.join(sorted(configure))}"
            )
        if not isinstance(table, Mapping):
            raise ConfigurationError(f"gateway.{name}: expected a table")
        for key in LISTENER_OPTIONS & set(table):
            raise ConfigurationError(f"gateway.{name}.{key}: the listener's own key says where")
        try:
            configure[name](_resolved(table))
        except (OptionError, DefinitionError, NamingError) as error:
            raise ConfigurationError(f"gateway.{name}: {error}") from error


def readMonitoringTable(tables: Mapping[str, Any]) -> Any:
    """
    Read what the file says of monitoring, which holds for other rooms than the gateway as well.

    @return: The C{MonitoringOptions}; C{None} if it says nothing.
    @raise ConfigurationError: If a key is not known, or a value is not right.
    """
    from storagegate.gateway.options import MonitoringOptions, readMonitoring

    table = tables.get("monitoring")
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise ConfigurationError("gateway.monitoring: expected a table")
    try:
        return readMonitoring(MonitoringOptions(), _resolved(table))
    except (OptionError, NamingError) as error:
        raise ConfigurationError(f"gateway.monitoring: {error}") from error


def _resolved(table: Mapping[str, Any]) -> dict[str, Any]:
    """Put functions in the places of their names."""
    resolved: dict[str, Any] = {}
    for key, value in table.items():
        if key in _FUNCTIONS and isinstance(value, str):
            value = loadObject(value)
        elif key in _FUNCTIONS and isinstance(value, Mapping):
            value = {
                name: loadObject(each) if isinstance(each, str) else each
                for name, each in value.items()
            }
        elif key == "handleStreaming" and isinstance(value, Mapping):
            value = {name: loadObject(each) for name, each in value.items()}
        elif isinstance(value, Mapping):
            value = _resolved(value)
        resolved[key] = value
    return resolved


class DaemonGatewayService:
    """The listeners of the gateway and the services behind them."""

    def __init__(
        self,
        configuration: Configuration,
        reactor: Any,
        surroundings: GatewayResources | None = None,
        link: WorkerIPC | None = None,
    ) -> None:
        """
        @param surroundings: What the gateway shares with the rest of the daemon.
        @param link: What a worker knows of the others, which listen at the same places.
        @raise ConfigurationError: If a service or an option is none, with one line.
        """
        listeners = configuration.listeners
        self._reactor = reactor
        self._services = configuration.services
        self._closers: list[Callable[[], Any]] = []
        self._credentials: Any = None
        self._link = link
        self._httpAddress: Any = None
        self._registration: Any = None
        rows = transports()
        options: dict[str, dict[str, Any]] = {}
        for row in rows:
            options[row.name] = dict(row.daemonOptions)
            if row.inherit == "reuseport":
                options[row.name]["reusePort"] = link is not None
        served = [row.name for row in rows if listeners.of(row.shares or row.name) is not None]
        self._gateway = ProtocolGateway(
            {name: given for name, given in options.items() if given} | {"protocols": served},
            surroundings=surroundings,
        )
        for name in self._services:
            try:
                self._gateway.addService(loadObject(name))
            except NamingError as error:
                raise ConfigurationError(f"service: {error}") from error
            except DefinitionError as error:
                raise ConfigurationError(f"service: {name}: {error}") from error
        if not self._services and listeners.of(GRPC.name) is not None:
            self._useProtos()
        configureGateway(self._gateway, configuration.gateway)
        self._checkDiscovery(listeners.of(HTTP.name))

    def _useProtos(self) -> None:
        """Serve the reference services over gRPC by their protos."""
        from storagegate.rpc.protos import ourProto

        for name in ("user.proto", "storage.proto"):
            self._gateway.protos.update(ourProto(name).services)
        self._gateway.configureGRPC(services=_PROTOS, transformResponse=_fitted)

    def open(self, name: str, place: str) -> IAddress:
        """
        Open a listener; nobody is served before the reactor runs.

        @param name: A transport with a listener of its own.
        @raise CannotListenError: If the place cannot be had.
        @raise OptionError: If an option does not fit the others.
        """
        found: list[Any] = []
        self._gateway.start(self._reactor).open(name, place).addBoth(found.append)
        if not found:
            raise OptionError(f"the listener {name} did not open at once")
        [port] = found
        if hasattr(port, "raiseException"):
            port.raiseException()
        address: IAddress = port.getHost()
        if name == HTTP.name:
            self._httpAddress = address
        return address

    def attachStore(self, store: Any, root: Any, region: str, directory: str) -> None:
        """
        Put the reference services in, unless there are the user's; tell others of what is here.

        @param root: The root key pair.
        @param directory: The data directory as an absolute path.
        """
        if not self._services:
            self._addReferenceServices(store, root, region, directory)
        self._register()

    def _addReferenceServices(self, store: Any, root: Any, region: str, directory: str) -> None:
        from storagegate.s3.accounts import AccessKeyStore
        from storagegate.services.objects import makeStorageService, storageAuthenticate
        from storagegate.services.users import makeUserService
        from storagegate.services.usertable import SQLiteUserStore

        users = SQLiteUserStore(os.path.join(directory, USERS_FILE), self._reactor)
        self._closers.append(users.close)
        self._add(makeUserService(users, bus=self._link))
        credentials = AccessKeyStore(store.accessKeys, root.accessKey, root.secretKey)
        self._credentials = credentials
        self._gateway.authentication.ownKeys["Storage"] = _StorageKeys(
            storageAuthenticate(credentials)
        )
        self._add(makeStorageService(store, credentials, region, maxItemBytes=maxItemBytes()))

    def _add(self, service: ServiceDefinition) -> None:
        """Add a service, unless discovery says that it is elsewhere."""
        if service.name not in self._gateway.services:
            self._gateway.addKnown(service)

    def warnings(self) -> Mapping[str, str | None]:
        """Tell what an operator should look at while calls are taken."""
        found = {"discovery": self._gateway.discoveryProblem}
        if self._registration is not None:
            found["registration"] = self._registration.problem
        return found

    @property
    def ports(self) -> Mapping[str, Any]:
        """Give the ports that are open, by the name of the listener."""
        own = [row.name for row in listenerTransports()]
        return {name: port for name, port in self._gateway.ports.items() if name in own}

    def onReadinessChange(self, readiness: Readiness) -> None:
        """
        Have the gRPC health service say how the daemon is.

        C{Storage} is served while the store is well, other services while nothing stops; the
        server as a whole is what C{/readyz} says.
        """
        isServing = readiness.status != "draining"
        isStored = isServing and not any(readiness.parts.values())
        self._gateway.setHealth(
            {name: isStored if name == "Storage" else isServing for name in self._gateway.services},
            readiness.status == "ok",
        )

    def _checkDiscovery(self, place: str | None) -> None:
        """
        Check what can be told of discovery before anything is open.

        @param place: Where HTTP is to be listened for.
        """
        options = self._gateway.discovery
        if options is None:
            return
        from storagegate.upstream.options import checkDiscovery, tlsTables
        from storagegate.upstream.registration import checkRegistration

        try:
            checkDiscovery(options)
            for table, tls in tlsTables(options).items():
                if tls.caFile is not None or tls.certFile is not None:
                    from storagegate.net.tls import checkFiles

                    checkFiles(tls, table)
            if options.register is not None:
                checkRegistration(options, self._servedHere(), _interface(place))
        except OptionError as error:
            raise ConfigurationError(f"gateway.discovery: {error}") from error

    def _servedHere(self) -> tuple[str, ...]:
        """Give the names of the services that are not only passed on."""
        names = self._gateway.services if self._services else tuple(_PROTOS.values())
        return tuple(name for name in names if name not in self._gateway.discovery.services)

    def _register(self) -> None:
        """Tell a registry of the services, if that was asked for."""
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
            # Of processes at one place one may go while the others stay.
            str(os.getpid()) if self._link is not None else "",
        )
        self._reactor.callWhenRunning(self._registration.start)

    def setRootCredentials(self, root: Any) -> None:
        """Take another root key pair: the one before is nobody's from now on."""
        if self._credentials is not None:
            self._credentials.setRoot(root.accessKey, root.secretKey)

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Let calls end, cancel them after the grace, and close what the services had.

        @param idleGraceSeconds: How long idle connections of HTTP may stay.
        """
        return Deferred.fromCoroutine(self._close(graceSeconds, idleGraceSeconds))

    async def _close(self, graceSeconds: float, idleGraceSeconds: float) -> None:
        if self._registration is not None:
            # Before all else: whoever is told in time does not knock at a closed door.
            await self._registration.stop()
        await self._gateway.stop(graceSeconds * 1000, idleGraceSeconds * 1000)
        closers, self._closers = self._closers, []
        for close in closers:
            await close()


class _StorageKeys:
    """Knows C{ACCESSKEY:SECRETKEY} wherever a key or a token may stand."""

    def __init__(self, prove: Callable[[str], Any]) -> None:
        self._prove = prove

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the key."""
        return credentials.apiKey or credentials.token

    def verify(self, token: str, context: RequestContext) -> Any:
        """Give whose it is; C{None} for nobody's."""
        return self._prove(token)


def _fitted(result: Any, method: str) -> Any:
    """Leave out what the message CreateMultipleUsersResponse has no field for."""
    if method == "UserService.CreateMultipleUsers" and "errors" in result:
        return {key: value for key, value in result.items() if key != "errors"}
    return result


def _interface(place: str | None) -> str | None:
    """Give the address that an endpoint names; C{None} where there is no port at all."""
    if place is None or place.startswith("unix:"):
        return None
    match = _INTERFACE.search(place)
    return "" if match is None else match[1].replace("\\:", ":")
