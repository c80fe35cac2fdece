"""
The gRPC client.

A client knows the methods of a service by its definition, or asks the server for them by
reflection when it needs them first. Until then a call waits; everything else is as if they had been
known all the time.
"""

import time
from collections.abc import Mapping
from typing import Any, Self

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall

from storagegate.core.errors import GrpcError
from storagegate.net.reactors import processReactor
from storagegate.rpc.call import wireMetadata
from storagegate.rpc.clientcall import CallOptions, ClientCall
from storagegate.rpc.clientoptions import readAddress, readArguments, readCredentials
from storagegate.rpc.definitions import RPCMethod, RPCService
from storagegate.rpc.later import Later
from storagegate.rpc.reflected import learnServices
from storagegate.rpc.wire import CANCELLED_MESSAGE, ClientClosedError, IClientEngine

# Learning is a few small messages; a server that takes longer has another problem.
_LEARNING_SECONDS = 10.0

# Of a service that has many methods, so many are named in an error.
_NAMED = 20


def createGrpcClient(
    address: str,
    credentials: Any = None,
    service: RPCService | str | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    reactor: Any = None,
) -> "GrpcClient":
    """
    Make a client of a gRPC server. It connects when it is used.

    Its methods are the service's in camelCase, C{client.getUser({"id": "1"})}, or by their own
    names, C{client["GetUser"]({"id": "1"})}, see L{MethodCaller.__call__}.

    @param address: C{"host:port"} or C{"unix:path"}.
    @param credentials: C{"insecure"} speaks in the clear and trusts whoever answers: for
        development only. C{"tls"} trusts the authorities that the system trusts. A mapping of
        C{ca}, C{cert}, C{key} (each the path of a PEM file, or its bytes) and C{serverName} names
        what to trust and who to be; without C{ca} the system's authorities hold.
    @param service: A service of L{loadProto<storagegate.rpc.protos.loadProto>}, or the full name of
        one, learned by reflection. Without it all of the server's services are learned, and the
        methods whose names are in one of them only are the client's own;
        L{service<GrpcClient.service>} gives those of one.
    @param options: C{maxReceiveMessageLength}, C{maxSendMessageLength} (bytes, -1 for no limit),
        C{keepaliveTimeMs}, C{keepaliveTimeoutMs}, C{compression} (C{"gzip"}).
    @raise ValueError: If one of these is none.
    """
    from storagegate.rpc.clientwire import ChannelEngine, secureCredentials

    tls = readCredentials(credentials)
    target, arguments = readAddress(address), readArguments(options, tls)
    if service is not None and not isinstance(service, RPCService | str):
        raise ValueError(f"a service is that of a loaded proto, or a name, not {service!r:.80}")
    reactor = processReactor() if reactor is None else reactor
    secure = None if tls is None else secureCredentials(tls.roots, tls.key, tls.chain)
    engine = ChannelEngine(target, secure, arguments, reactor)
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
        self._learning: Later[None] | None = None
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
            L{ReflectionError<storagegate.rpc.reflected.ReflectionError>}.
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
            learning = self._learning = Later()
            Deferred.fromCoroutine(self._learn(learning, waitForReady))
        return learning.wait()

    async def _learn(self, learning: Later[None], waitForReady: bool) -> None:
        deadline = time.time() + _LEARNING_SECONDS
        try:
            self._services = await learnServices(self._engine, deadline, waitForReady, self._wanted)
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
