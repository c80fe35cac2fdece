"""
The gRPC client.

A client knows the methods of a service by its definition, or asks the server for them by
reflection when it needs them first. Until then a call waits; everything else is as if they had been
known all the time.

What a client is told of its server: where it is, how far to trust it, and its options.
"""

import os
import ssl
import time
from collections.abc import Mapping
from typing import Any, Literal, Self, TypedDict

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall

from storagegate import __version__
from storagegate.core.errors import GrpcError
from storagegate.core.files import readPEM
from storagegate.core.options import OptionError, changeOptions, takesMapping
from storagegate.core.streams import SharedFuture
from storagegate.net.endpoints import processReactor
from storagegate.rpc.application import GRPCServerOptions
from storagegate.rpc.call import wireMetadata
from storagegate.rpc.clientcall import CallOptions, ClientCall
from storagegate.rpc.engine import makeClientEngine
from storagegate.rpc.interfaces import CANCELLED_MESSAGE, ClientClosedError, IClientEngine
from storagegate.rpc.protos import RPCMethod, RPCService
from storagegate.rpc.reflection import fetchServices

_OPTIONS = (
    "compression",
    "keepaliveTimeMs",
    "keepaliveTimeoutMs",
    "maxReceiveMessageLength",
    "maxSendMessageLength",
)

# The numbers that grpcio has for them.
_ALGORITHMS = {"deflate": 1, "gzip": 2}

# Where systems keep the authorities that they trust, the one that OpenSSL was built with first.
_SYSTEM_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_CREDENTIALS = (
    '"insecure" (in the clear, for development), "tls" (the authorities that the system trusts), '
    'or a mapping of "ca", "cert", "key" and "serverName"'
)


@frozen
class GRPCClientTLS:
    """
    How a client knows its server, and is known; all PEM.

    @ivar roots: The authorities that may vouch for the server; C{None} for grpcio's own list.
    @ivar key: The client's key.
    @ivar chain: Its certificate.
    @ivar serverName: The name that the server's certificate has to have, if not the address.
    """

    roots: bytes | None = None
    key: bytes | None = None
    chain: bytes | None = None
    serverName: str | None = None


class ClientOptionsDict(TypedDict, total=False):
    """
    The options of a client as keywords; each is the one of
    L{GRPCServerOptions<storagegate.rpc.application.GRPCServerOptions>}.
    """

    compression: Literal["gzip", "deflate", "identity"] | None
    keepaliveTimeMs: int | None
    keepaliveTimeoutMs: int | None
    maxReceiveMessageLength: int | str | None
    maxSendMessageLength: int | str | None


def readAddress(address: Any) -> str:
    """
    Give an address in gRPC's own form.

    @param address: C{"host:port"}, C{"[::1]:port"} or C{"unix:path"}.
    @raise ValueError: If it is none.
    """
    problem = f'the address of a gRPC server is "host:port" or "unix:path", not {address!r:.80}'
    if not isinstance(address, str):
        raise ValueError(problem)
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path:
            raise ValueError(problem)
        return f"unix:{path}"
    host, _, port = address.rpartition(":")
    isBracketed = host.startswith("[") and host.endswith("]")
    isPort = port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536
    if not host or not isPort or (":" in host and not isBracketed) or "/" in host:
        raise ValueError(problem)
    return f"dns:///{host}:{port}"


def readCredentials(credentials: Any) -> GRPCClientTLS | None:
    """
    Read how to speak to a server.

    Certificates and keys are paths, or the PEM bytes themselves.

    @return: C{None} to speak in the clear.
    @raise ValueError: If it is no way that there is, or a file cannot be used.
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
    roots = _certificates("ca", given["ca"]) if "ca" in given else _systemRoots()
    if "cert" not in given:
        return GRPCClientTLS(roots=roots, serverName=serverName)
    chain, key = _certificates("cert", given["cert"]), _key(given["key"])
    return GRPCClientTLS(roots, key, chain, serverName)


def readArguments(
    options: Mapping[str, Any] | None, tls: GRPCClientTLS | None
) -> list[tuple[str, Any]]:
    """
    Give a client's options in gRPC's own words.

    @raise OptionError: If there is no such option, or its value is none.
    """
    given = dict(options or {})
    for name in given:
        if name not in _OPTIONS:
            raise OptionError(f"a client has no option {name!r}; there are {sorted(_OPTIONS)}")
    read = changeOptions(GRPCServerOptions(), given)
    arguments: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", f"storagegate/{__version__}"),
        # A connection is its client's own: it goes when that is closed, and the failures of others
        # do not keep it waiting.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    arguments += read.arguments(_OPTIONS)
    if read.compression is not None:
        algorithm = _ALGORITHMS[read.compression]
        arguments.append(("grpc.default_compression_algorithm", algorithm))
    if tls is not None and tls.serverName is not None:
        arguments.append(("grpc.ssl_target_name_override", tls.serverName))
        arguments.append(("grpc.default_authority", tls.serverName))
    return arguments


def _systemRoots() -> bytes | None:
    """Find the authorities that this system trusts."""
    own = ssl.get_default_verify_paths().cafile
    for path in (own, *_SYSTEM_ROOTS):
        if path is not None and os.path.isfile(path):
            return _pem("ca", path)
    return None


def _pem(name: str, value: Any) -> bytes:
    """Read a file, if it is not the content already."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"credentials.{name} is the path of a PEM file, or its bytes")
    try:
        return readPEM(value)
    except ValueError as error:
        raise ValueError(f"credentials.{name}: {error}") from None


def _certificates(name: str, value: Any) -> bytes:
    """Read certificates; grpcio would find out at the first call, and say little of it."""
    content = _pem(name, value)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=content.decode("ascii")
        )
    except (ssl.SSLError, UnicodeDecodeError):
        raise ValueError(f"credentials.{name} is no PEM certificate") from None
    return content


def _key(value: Any) -> bytes:
    content = _pem("key", value)
    if b"PRIVATE KEY-----" not in content or b"ENCRYPTED" in content:
        raise ValueError("credentials.key is no PEM key, or needs a password")
    return content


# Learning is a few small messages; a server that takes longer has another problem.
_LEARNING_SECONDS = 10.0

# What a mapping after the address may hold; no part of credentials has one of these names.
_PARAMETERS = frozenset({"credentials", "service", "options", "reactor"})

# Of a service that has many methods, so many are named in an error.
_NAMED = 20


@takesMapping
def createGrpcClient(
    address: str,
    credentials: Literal["insecure", "tls"] | Mapping[str, Any] | None = None,
    service: RPCService | str | None = None,
    *,
    options: ClientOptionsDict | None = None,
    reactor: Any = None,
) -> "GrpcClient":
    """
    Make a client of a gRPC server. It connects when it is used.

    Its methods are the service's in camelCase, C{client.getUser({"id": "1"})}, or by their own
    names, C{client["GetUser"]({"id": "1"})}, see L{MethodCaller.__call__}.

    All of these, or those after the address, may be in one mapping.

    @param address: C{"host:port"} or C{"unix:path"}.
    @param credentials: C{"insecure"} speaks in the clear and trusts whoever answers: for
        development only. C{"tls"} trusts the authorities that the system trusts. A mapping of
        C{ca}, C{cert}, C{key} (each the path of a PEM file, or its bytes) and C{serverName} names
        what to trust and who to be; without C{ca} the system's authorities hold. A mapping that
        names one of the other parameters, or C{credentials}, is no credentials but a mapping of
        parameters.
    @param service: A service of L{loadProto<storagegate.rpc.protos.loadProto>}, or the full name of
        one, learned by reflection. Without it all of the server's services are learned, and the
        methods whose names are in one of them only are the client's own;
        L{service<GrpcClient.service>} gives those of one.
    @param options: C{maxReceiveMessageLength}, C{maxSendMessageLength} (bytes, -1 for no limit),
        C{keepaliveTimeMs}, C{keepaliveTimeoutMs}, C{compression} (C{"gzip"}).
    @raise ValueError: If one of these is none.
    """
    if isinstance(credentials, Mapping) and not _PARAMETERS.isdisjoint(credentials):
        given = {"service": service, "options": options, "reactor": reactor}
        keywords = {name: value for name, value in given.items() if value is not None}
        return createGrpcClient({"address": address, **credentials}, **keywords)

    tls = readCredentials(credentials)
    target, arguments = readAddress(address), readArguments(options, tls)
    if service is not None and not isinstance(service, RPCService | str):
        raise ValueError(f"a service is that of a loaded proto, or a name, not {service!r:.80}")
    reactor = processReactor() if reactor is None else reactor
    secure = None
    if tls is not None:
        from storagegate.rpc.credentials import makeChannelCredentials

        secure = makeChannelCredentials(tls.roots, tls.key, tls.chain)
    engine = makeClientEngine(target, secure, arguments, reactor)
    return GrpcClient(engine, service, reactor)


class ServiceClient:
    """
    The methods of one service, or of all that a server has.

    A method whose name in camelCase is that of an attribute here is had by its own name in
    brackets.
    """

    def __init__(self, engine: IClientEngine, service: RPCService | str | None, clock: Any) -> None:
        """
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
        # Python itself asks for names that start so.
        if name.startswith("_"):
            raise AttributeError(name)
        caller = MethodCaller(self, name)
        if self._services is not None:
            self.findMethod(name)
            # The next time it is found without coming here.
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
        """Give the services by their full names; none while they are not known."""
        return dict(self._services or {})

    def ready(self) -> Deferred[Self]:
        """
        Learn what the methods are, if that is not known; calls do so by themselves.

        @return: This client. Fails with L{GrpcError} or
            L{ReflectionError<storagegate.rpc.reflection.ReflectionError>}.
        """
        return self._known(waitForReady=False).addCallback(lambda known: self)

    def findMethod(self, name: str) -> RPCMethod:
        """
        Find a method of services that are known.

        @param name: Its own name, or that in camelCase.
        @raise AttributeError: If there is none, or if several services have it.
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
                f"several services have {name!r}: {names}; client.service(name) gives those of one"
            )
        methods = sorted(key for each in services.values() for key in each.methods)[:_NAMED]
        raise AttributeError(f"{names or 'the server'} has no method {name!r}; {methods=}")

    def invoke(self, name: str, request: Any, options: CallOptions) -> ClientCall:
        """Make a call, now or when the services are known."""
        if self._engine.isClosed:
            raise ClientClosedError("the client is closed")
        call = ClientCall(self._engine, name, request, options)
        if self._services is not None:
            call.begin(self.findMethod(name))
            return call
        timer = None
        if options.deadline is not None:
            late = GrpcError("DEADLINE_EXCEEDED", "the services were not known in time")
            seconds = max(0.0, options.deadline - time.time())
            timer = self._clock.callLater(seconds, call.fail, late)
        Deferred.fromCoroutine(self._invokeLater(call, name, options.waitForReady, timer))
        return call

    async def _invokeLater(
        self, call: ClientCall, name: str, waitForReady: bool, timer: IDelayedCall | None
    ) -> None:
        """Begin a call when the services are known."""
        try:
            await self._known(waitForReady)
            call.begin(self.findMethod(name))
        except ClientClosedError:
            # The call was made before, and ends as all that are under way then.
            call.fail(GrpcError("CANCELLED", CANCELLED_MESSAGE))
        except Exception as error:
            call.fail(error)
        finally:
            if timer is not None and timer.active():
                timer.cancel()

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
        deadline = time.time() + _LEARNING_SECONDS
        try:
            self._services = await fetchServices(self._engine, deadline, waitForReady, self._wanted)
        except Exception as error:
            # Whoever comes next tries again.
            self._learning = None
            learning.fail(error)
        else:
            learning.set(None)


class GrpcClient(ServiceClient):
    """A client of one server, see L{createGrpcClient}."""

    def service(self, service: RPCService | str) -> ServiceClient:
        """
        Give the methods of another service of the same server.

        @param service: As for L{createGrpcClient}.
        """
        if isinstance(service, str) and self._services and service in self._services:
            service = self._services[service]
        return ServiceClient(self._engine, service, self._clock)

    def close(self) -> Deferred[None]:
        """
        Close the connection; calls that are under way end with C{CANCELLED}.

        @return: Fires when nothing is left, no thread either.
        """
        return self._engine.close()


class MethodCaller:
    """One method of a client's."""

    __slots__ = ("_client", "_name")

    def __init__(self, client: ServiceClient, name: str) -> None:
        self._client = client
        self._name = name

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
        **fields: Any,
    ) -> ClientCall:
        """
        Make a call.

        @param request: A mapping or a message; an iterable of them, plain or asynchronous, for a
            stream of requests, from which each is taken when there is room for it.
        @param metadata: A mapping of names to a value or a list of them; values of names that end
            in C{-bin} are bytes.
        @param deadlineMs: After so many milliseconds the call ends with C{DEADLINE_EXCEEDED}.
        @param waitForReady: Whether to wait for a connection; else a server that is not there is
            C{UNAVAILABLE} at once.
        @param fields: The request's fields, in place of C{request}.
        @raise ConversionError: If the request does not fit its message.
        @raise ValueError: If the metadata or the deadline is none.
        """
        if fields:
            if request is not None:
                raise TypeError(f"{self._name} takes a request or its fields, not both")
            request = fields
        entries = () if metadata is None else wireMetadata(metadata)
        deadline = None if deadlineMs is None else time.time() + _seconds(deadlineMs)
        options = CallOptions(entries, deadline, bool(waitForReady))
        return self._client.invoke(self._name, request, options)


def _seconds(milliseconds: Any) -> float:
    isNumber = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    # Not a number, too, is not above 0.
    if not isNumber or not 0 < milliseconds < float("inf"):
        raise ValueError(f"deadlineMs is a number of milliseconds, not {milliseconds!r:.40}")
    return float(milliseconds) / 1000
