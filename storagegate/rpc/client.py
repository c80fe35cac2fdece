"""
The gRPC client.

A client knows the methods of a service from its definition, or fetches them by reflection: the
first call waits for them.
"""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, overload

from attrs import define
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.python.failure import Failure

from storagegate.core.errors import GrpcError
from storagegate.core.options import OptionError, changeOptions, takesMapping
from storagegate.core.streams import SharedFuture
from storagegate.core.task import portable
from storagegate.net.endpoints import processReactor
from storagegate.rpc.call import wireMetadata
from storagegate.rpc.clientcall import ClientCall
from storagegate.rpc.credentials import GRPCClientTLS, readCertificates, readPEMOption
from storagegate.rpc.engine import makeClientEngine
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    CallOptions,
    ClientClosedError,
    IClientEngine,
)
from storagegate.rpc.options import GRPCServerOptions
from storagegate.rpc.protos import RPCMethod, RPCService
from storagegate.rpc.reflectionclient import fetchServices

if TYPE_CHECKING:
    from storagegate.rpc.typedclient import TypedGrpcClient

T = TypeVar("T")

_COMPRESSIONS = ("gzip", "deflate", "identity")

# The usual files of the system's trusted authorities; OpenSSL's default comes first.
_SYSTEM_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_LISTS: Mapping[str, Callable[[str], bool]] = {
    "ipv4": isIPAddress,
    "ipv6": lambda host: host[:1] == "[" and host[-1:] == "]" and isIPv6Address(host[1:-1]),
}
"""The schemes of targets with several addresses. Each function checks one address."""

_CREDENTIALS = (
    '"insecure" (clear text, for development), "tls" (the authorities of the system), '
    'or a mapping of "ca", "cert", "key" and "serverName"'
)


class ClientOptionsDict(TypedDict, total=False):
    """
    The options of a client as keywords; each has the meaning of the option in
    L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
    """

    compression: Literal["gzip", "deflate", "identity"] | None
    engine: Literal["grpcio", "native"]
    keepalivePermitWithoutCalls: bool | None
    keepaliveTimeMs: int | None
    keepaliveTimeoutMs: int | None
    maxConnectionIdle: int | None
    maxReceiveMessageLength: int | str | None
    maxSendMessageLength: int | str | None


_OPTIONS = tuple(ClientOptionsDict.__annotations__)


def readAddress(address: Any) -> str:
    """
    Convert an address to a gRPC target.

    @param address: C{"host:port"}, C{"[::1]:port"} or C{"unix:path"}, or a target: C{"dns:///"} and
        one of the former, or several addresses of one server, C{"ipv4:192.0.2.1:443,192.0.2.2:443"}
        or C{"ipv6:[2001:db8::1]:443"}.
    @raise ValueError: If it has none of these forms.
    """
    problem = f'the address of a gRPC server is "host:port" or "unix:path", not {address!r:.80}'
    if not isinstance(address, str):
        raise ValueError(problem)
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path:
            raise ValueError(problem)
        return f"unix:{path}"
    scheme, _, rest = address.partition(":")
    if scheme in _LISTS:
        for each in rest.split(","):
            host, _, port = each.rpartition(":")
            if not (_LISTS[scheme](host) and _isPort(port)):
                raise ValueError(problem)
        return address
    host, _, port = address.removeprefix("dns:///").rpartition(":")
    isBracketed = host.startswith("[") and host.endswith("]")
    if not host or not _isPort(port) or (":" in host and not isBracketed) or "/" in host:
        raise ValueError(problem)
    return f"dns:///{host}:{port}"


def _isPort(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536


def readCredentials(credentials: Any) -> GRPCClientTLS | None:
    """
    Read the credentials of a client.

    @param credentials: C{"insecure"}, C{"tls"}, or a mapping; its certificates and keys are paths
        or PEM bytes.
    @return: C{None} for plain text.
    @raise ValueError: If they are invalid, or a file cannot be used.
    """
    if credentials == "insecure":
        return None
    if credentials == "tls":
        return GRPCClientTLS(roots=_systemRoots())
    if not isinstance(credentials, Mapping):
        raise ValueError(f"credentials are {_CREDENTIALS}, not {credentials!r:.80}")
    for key in credentials:
        if key not in ("ca", "cert", "key", "serverName"):
            raise ValueError(f"credentials have no {key!r:.80}; they are {_CREDENTIALS}")
    given = {key: value for key, value in credentials.items() if value is not None}
    if ("cert" in given) != ("key" in given):
        raise ValueError("credentials.cert and credentials.key go together")
    serverName = given.get("serverName")
    if serverName is not None and not (isinstance(serverName, str) and serverName):
        raise ValueError("credentials.serverName is the name in the server's certificate")
    roots = readCertificates("credentials.ca", given["ca"]) if "ca" in given else _systemRoots()
    if "cert" not in given:
        return GRPCClientTLS(roots=roots, serverName=serverName)
    chain = readCertificates("credentials.cert", given["cert"])
    key = readPEMOption("credentials.key", given["key"])
    if b"PRIVATE KEY-----" not in key or b"ENCRYPTED" in key:
        raise ValueError("credentials.key is not a PEM key, or needs a password")
    return GRPCClientTLS(roots, key, chain, serverName)


def readOptions(options: Mapping[str, Any] | None) -> GRPCServerOptions:
    """
    Read the options of a client.

    @param options: See L{createGrpcClient}.
    @raise OptionError: If an option is unknown or has an invalid value.
    """
    given = dict(options or {})
    for name in given:
        if name not in _OPTIONS:
            raise OptionError(f"a client has no option {name!r}; it has {sorted(_OPTIONS)}")
    return changeOptions(GRPCServerOptions(), given)


def _systemRoots() -> bytes | None:
    """Read the authorities that the system trusts."""
    own = ssl.get_default_verify_paths().cafile
    for path in (own, *_SYSTEM_ROOTS):
        if path is not None and os.path.isfile(path):
            return readPEMOption("credentials", path)
    return None


_REFLECTION_SECONDS = 10.0
"""The deadline of reflection, which takes a few small messages."""

_PARAMETERS = frozenset({"credentials", "service", "types", "protoLock", "options", "reactor"})
"""Keys of a mapping of parameters; credentials have no such keys."""

_NAMED = 20
"""How many methods an error names."""


@overload
def createGrpcClient(
    address: str,
    credentials: Literal["insecure", "tls"] | Mapping[str, Any] | None = None,
    service: RPCService | str | None = None,
    *,
    types: Callable[..., T],
    protoLock: str | None = None,
    options: ClientOptionsDict | None = None,
    reactor: Any = None,
) -> "TypedGrpcClient[T]": ...


@overload
def createGrpcClient(
    address: str,
    credentials: Literal["insecure", "tls"] | Mapping[str, Any] | None = None,
    service: RPCService | str | None = None,
    *,
    options: ClientOptionsDict | None = None,
    reactor: Any = None,
) -> "GrpcClient": ...


@overload
def createGrpcClient(address: Mapping[str, Any], /, **more: Any) -> "GrpcClient": ...


@takesMapping
def createGrpcClient(
    address: str,
    credentials: Literal["insecure", "tls"] | Mapping[str, Any] | None = None,
    service: RPCService | str | None = None,
    *,
    types: Any = None,
    protoLock: str | None = None,
    options: ClientOptionsDict | None = None,
    reactor: Any = None,
) -> Any:
    """
    Make a client of a gRPC server. It connects on first use.

    The service's methods are attributes in camelCase, C{client.getUser({"id": "1"})}, and items
    under their own names, C{client["GetUser"]({"id": "1"})}; see L{MethodCaller.__call__}.

    All parameters, or all after the address, may be passed as one mapping.

    @param address: C{"host:port"} or C{"unix:path"}; see L{readAddress}.
    @param credentials: C{"insecure"} is plain text without authentication: for development only.
        C{"tls"} trusts the system's authorities. A mapping of C{ca}, C{cert}, C{key} (each the path
        of a PEM file, or its bytes) and C{serverName} gives the authorities and the client's own
        certificate; C{ca} defaults to the system's. A mapping with a key of another parameter, or
        C{credentials}, is a mapping of parameters.
    @param service: A service of C{loadProto}, or the full name of a service to fetch by reflection.
        Without it, all of the server's services are fetched, and methods with a unique name are
        attributes; L{service<GrpcClient.service>} returns a client of one service.
    @param types: A class that declares the methods of the service, whose calls then take and return
        instances: the result is a
        L{TypedGrpcClient<storagegate.rpc.typedclient.TypedGrpcClient>}. The name of the service is
        by default the name of the class.
    @param protoLock: With C{types}, the path of the lock that numbers the fields of the messages,
        if the server has one.
    @param options: C{maxReceiveMessageLength}, C{maxSendMessageLength} (bytes, -1 for no limit),
        C{keepaliveTimeMs}, C{keepaliveTimeoutMs}, C{keepalivePermitWithoutCalls},
        C{maxConnectionIdle} (milliseconds), C{compression} (C{"gzip"}), C{engine} (C{"grpcio"} or
        C{"native"}).
    @raise ValueError: If a parameter is invalid.
    """
    if isinstance(credentials, Mapping) and not _PARAMETERS.isdisjoint(credentials):
        given = {
            "service": service,
            "types": types,
            "protoLock": protoLock,
            "options": options,
            "reactor": reactor,
        }
        keywords: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        return createGrpcClient({"address": address, **credentials}, **keywords)

    tls = readCredentials(credentials)
    target, read = readAddress(address), readOptions(options)
    if service is not None and not isinstance(service, RPCService | str):
        raise ValueError(f"a service is that of a loaded proto, or a name, not {service!r:.80}")
    typed = None
    if types is not None:
        # Imported late: protobuf's descriptors take 0.6 MB.
        from storagegate.rpc.typedclient import TypedGrpcClient, typedService

        typed = typedService(types, service, protoLock)
    elif protoLock is not None:
        raise ValueError("protoLock is the lock of the messages of types, and there are none")
    reactor = processReactor(reactor)
    engine = makeClientEngine(target, tls, read, reactor)
    client = GrpcClient(engine, service, reactor)
    return client if typed is None else TypedGrpcClient(client, typed)


class ServiceClient:
    """
    The methods of one service, or of all services of a server.

    A method whose camelCase name is an attribute of this class is available under its own name in
    brackets.
    """

    def __init__(self, engine: IClientEngine, service: RPCService | str | None, clock: Any) -> None:
        """
        @param service: The definition, or the full name; C{None} for all services.
        @param clock: Provides C{IReactorTime}.
        """
        self._engine = engine
        self._clock = clock
        self._wanted = service if isinstance(service, str) else None
        self._services: dict[str, RPCService] | None = None
        self._learning: SharedFuture[None] | None = None
        if isinstance(service, RPCService):
            self._services = {service.name: service}

    def __getattr__(self, name: str) -> "MethodCaller":
        # Python itself looks up such names.
        if name.startswith("_"):
            raise AttributeError(name)
        caller = MethodCaller(self, name)
        if self._services is not None:
            self.findMethod(name)
            # Cached: the next look-up skips this method.
            self.__dict__[name] = caller
        return caller

    def __getitem__(self, name: str) -> "MethodCaller":
        try:
            if self._services is not None:
                self.findMethod(name)
        except AttributeError as error:
            raise KeyError(str(error)) from None
        return MethodCaller(self, name)

    @property
    def services(self) -> dict[str, RPCService]:
        """The services by their full names; empty until they are known."""
        return dict(self._services or {})

    def ready(self) -> Deferred[Self]:
        """
        Fetch the methods by reflection, if they are not known. Calls do this themselves.

        @return: This client. Fails with L{GrpcError} or
            L{ReflectionError<storagegate.rpc.reflectionclient.ReflectionError>}.
        """
        return portable(self._known(waitForReady=False).addCallback(lambda known: self))

    def findMethod(self, name: str) -> RPCMethod:
        """
        Find a method of the known services.

        @param name: Its own name, or its camelCase name.
        @raise AttributeError: If no service has it, or several do.
        """
        services = self._services or {}
        found = [
            (each, method) for each in services.values() if (method := each.find(name)) is not None
        ]
        if len(found) == 1:
            return found[0][1]
        names = ", ".join(sorted(each.name for each, _ in found) or sorted(services))
        if found:
            raise AttributeError(
                f"several services have {name!r}: {names}; use client.service(name) to select one"
            )
        methods = sorted(key for each in services.values() for key in each.methods)[:_NAMED]
        raise AttributeError(f"{names or 'the server'} has no method {name!r}; {methods=}")

    def invoke(self, name: str, request: Any, options: CallOptions) -> ClientCall:
        """Make a call, at once or when the services are known; see L{MethodCaller.__call__}."""
        if self._engine.isClosed:
            raise ClientClosedError("the client is closed")
        call = ClientCall(self._engine, name, request, options, self._clock)
        if self._services is not None:
            call.begin(self.findMethod(name))
            return call
        known = self._known(options.waitForReady)
        if options.deadline is not None:
            known.addTimeout(max(0.0, options.deadline - time.time()), self._clock)
        known.addCallback(lambda result: call.begin(self.findMethod(name)))

        def failed(failure: Failure) -> None:
            error: Any = failure.value
            if failure.check(TimeoutError):
                error = GrpcError(
                    "DEADLINE_EXCEEDED", "the services could not be discovered in time"
                )
            elif failure.check(ClientClosedError):
                # It ends like calls in flight when the client closes.
                error = GrpcError("CANCELLED", CANCELLED_MESSAGE)
            call.fail(error)

        known.addErrback(failed)
        return call

    def _known(self, waitForReady: bool) -> Deferred[None]:
        """Wait until the services are known."""
        if self._services is not None:
            return succeed(None)
        learning = self._learning
        if learning is None:
            learning = self._learning = SharedFuture()
            Deferred.fromCoroutine(self._learn(learning, waitForReady))
        return learning.wait()

    async def _learn(self, learning: SharedFuture[None], waitForReady: bool) -> None:
        deadline = time.time() + _REFLECTION_SECONDS
        try:
            self._services = await fetchServices(self._engine, deadline, waitForReady, self._wanted)
        except Exception as error:
            # The next call retries.
            self._learning = None
            learning.fail(error)
        else:
            learning.set(None)


class GrpcClient(ServiceClient):
    """A client of one server, see L{createGrpcClient}."""

    def service(self, service: RPCService | str) -> ServiceClient:
        """
        Return a client of another service of the same server.

        @param service: See L{createGrpcClient}.
        """
        if isinstance(service, str) and self._services and service in self._services:
            service = self._services[service]
        return ServiceClient(self._engine, service, self._clock)

    def close(self) -> Deferred[None]:
        """
        Close the connection; calls in flight end with C{CANCELLED}.

        @return: Fires when the connection has closed and the thread has ended.
        """
        return portable(self._engine.close())


@define(eq=False)
class MethodCaller:
    """One method of a client."""

    _client: ServiceClient
    _name: str

    def __repr__(self) -> str:
        return f"<the method {self._name} of a gRPC client>"

    def __call__(
        self,
        request: Any = None,
        /,
        *,
        metadata: Any = None,
        deadlineMs: float | None = None,
        waitForReady: bool = False,
        compression: Literal["gzip", "deflate", "identity"] | None = None,
        **fields: Any,
    ) -> ClientCall:
        """
        Make a call.

        @param request: A mapping or a message. For a stream of requests, an iterable of these,
            plain or asynchronous; each item is taken when it can be sent.
        @param metadata: A mapping of names to a value or a list of values. Values are bytes if the
            name ends in C{-bin}.
        @param deadlineMs: The deadline in milliseconds, after which the call ends with
            C{DEADLINE_EXCEEDED}.
        @param waitForReady: Whether to wait for a connection; otherwise the call fails with
            C{UNAVAILABLE} if the server cannot be reached.
        @param compression: How requests are compressed, C{"identity"} for not at all; C{None} for
            the option of the client.
        @param fields: The request's fields, instead of C{request}.
        @raise ConversionError: If the request does not fit its message.
        @raise ValueError: If the metadata, the deadline or the compression is invalid.
        """
        if fields:
            if request is not None:
                raise TypeError(f"{self._name} takes a request or its fields, not both")
            request = fields
        entries = () if metadata is None else wireMetadata(metadata)
        deadline = None
        if deadlineMs is not None:
            isNumber = isinstance(deadlineMs, int | float) and not isinstance(deadlineMs, bool)
            # This also rejects NaN.
            if not isNumber or not 0 < deadlineMs < float("inf"):
                raise ValueError(f"deadlineMs is a number of milliseconds, not {deadlineMs!r:.40}")
            deadline = time.time() + deadlineMs / 1000
        if compression is not None and compression not in _COMPRESSIONS:
            raise ValueError(f"compression is one of {_COMPRESSIONS}, not {compression!r:.40}")
        options = CallOptions(entries, deadline, bool(waitForReady), compression)
        return self._client.invoke(self._name, request, options)
