"""
The wires of a gateway: each adapter made when its wire is wanted, opened, and closed.

An adapter is imported when its wire is opened: a gateway pays for the wires that it has.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.logger import Logger

from storagegate.core.definitions import ServiceDefinition
from storagegate.gateway.host import SocketOwnership, TransportContext
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.websocket import OriginRule

AnswerCacheMaker = Callable[[], Any]
"""
Makes an L{IReplyCache<storagegate.gateway.transports.udp.replycache.IReplyCache>} when UDP is
opened.
"""

_log = Logger()


class TransportSet:
    """
    The wires that a gateway has opened.

    @ivar host: What the adapters share.
    @ivar ports: The ports by wire; WebSocket has that of HTTP.
    """

    def __init__(
        self,
        host: TransportContext,
        options: GatewayOptions,
        reactor: Any,
        protos: Mapping[str, Any] | None = None,
        apiKeyHeader: str = "X-API-Key",
        makeAnswers: AnswerCacheMaker | None = None,
        turn: SocketOwnership | None = None,
    ) -> None:
        """
        @param reactor: The whole reactor: every adapter needs another part of it.
        @param protos: Services of protos that are loaded already, by full name.
        @param apiKeyHeader: The field of HTTP that API keys are in.
        @param makeAnswers: Makes what keeps the answers of UDP, for several processes.
        @param turn: Tells when UDP is read here; C{None} for always.
        """
        self._makeAnswers = makeAnswers
        self._turn = turn
        self._protos = protos or {}
        self._apiKeyHeader = apiKeyHeader
        self.host = host
        self.ports: dict[str, Any] = {}
        self._options = options
        self._reactor = reactor
        self._http: Any = None
        self._websocket: Any = None
        self._application: Any = None
        self._others: dict[str, Any] = {}
        # Closes what is made only after everything was to close.
        self._closeLate: Callable[[Any], object] | None = None
        self._services: list[ServiceDefinition] = []

    def add(self, service: ServiceDefinition) -> None:
        """Serve a service on the wires that have to be told; the others ask the invoker."""
        self._services.append(service)
        if "grpc" in self._others:
            self._others["grpc"].add(service)

    def setHealth(self, services: Mapping[str, bool], overall: bool) -> None:
        """Say which services are well, on the wire that has a way to ask for it."""
        if "grpc" in self._others:
            self._others["grpc"].setHealth(services, overall)

    async def openAll(self, names: Iterable[str], hostname: str) -> dict[str, Any]:
        """
        Open wires at the places that the options name.

        @return: The ports by wire.
        @raise CannotListenError: If a place is taken: then no port is left open.
        """
        try:
            for wire, place in self.places(tuple(names), hostname).items():
                await self.open(wire, place)
        except Exception:
            await self.close(0)
            raise
        return dict(self.ports)

    def places(self, names: tuple[str, ...], hostname: str) -> dict[str, str]:
        """Give the place of each wire, as L{open} takes it."""
        options = self._options
        quoted = hostname.replace(":", "\\:")
        bracketed = f"[{hostname}]" if ":" in hostname else hostname
        places: dict[str, str] = {}
        if "http" in names or "websocket" in names:
            wire = "http" if "http" in names else "websocket"
            places[wire] = f"tcp:{options.port}:interface={quoted}"
        if "grpc" in names:
            places["grpc"] = f"{options.grpc.hostname or bracketed}:{options.grpc.port}"
        if "tcp" in names:
            interface = (options.tcp.hostname or hostname).replace(":", "\\:")
            places["tcp"] = f"tcp:{options.tcp.port}:interface={interface}"
        if "udp" in names:
            places["udp"] = f"{options.udp.hostname or bracketed}:{options.udp.port}"
        return places

    def open(self, wire: str, place: str) -> Deferred[Any]:
        """
        Open one wire.

        @param wire: C{http} (with WebSocket, if that is enabled), C{websocket} alone, C{grpc},
            C{tcp} or C{udp}.
        @param place: An endpoint's description; C{HOST:PORT} for gRPC and UDP.
        @return: The port. Fails with C{CannotListenError} if the place cannot be had.
        """
        opening: Deferred[Any]
        names: tuple[str, ...] = (wire,)
        if wire in ("http", "websocket"):
            if wire == "http" and "websocket" in self._options.enabled:
                names = ("http", "websocket")
            application = self._application = self.application(names)
            self.host.meter("http").connections = lambda: application.connections
            opening = self._application.listen(place, reactor=self._reactor)
        else:
            self._others[wire] = self._adapter(wire)
            opening = self._others[wire].open(place)

        def opened(port: Any) -> Any:
            self.ports.update(dict.fromkeys(names, port))
            return port

        return opening.addCallback(opened)

    def application(self, names: tuple[str, ...]) -> Any:
        """Make the application that HTTP and WebSocket share."""
        from storagegate.gateway.transports.http.listener import makeApplication

        application = makeApplication()
        if "websocket" in names:
            # Refuses an origin that is none.
            OriginRule(self._options.websocket.allowedOrigins)
            path = self._options.websocket.path or "/"
            # Autobahn takes 6 MB and 60 ms: who is never asked for a WebSocket does not need it.
            application.all(path, lambda req, res: self.webSocket().answer(req, res))
        if "http" in names:
            self.http().checkRoutes()
            self.http().install(application)
        return application

    def http(self) -> Any:
        """Give the adapter of HTTP."""
        if self._http is None:
            from storagegate.gateway.transports.http.listener import HTTPTransport

            self._http = HTTPTransport(self.host, self._options, self._apiKeyHeader)
        return self._http

    def webSocket(self) -> Any:
        """Give the adapter of WebSocket."""
        if self._websocket is None:
            from storagegate.gateway.transports.websocket.listener import WebSocketTransport

            self._websocket = WebSocketTransport(self.host, self._options.websocket, self._reactor)
            if self._closeLate is not None:
                self._closeLate(self._websocket)
        return self._websocket

    def _adapter(self, wire: str) -> Any:
        if wire == "grpc":
            from storagegate.gateway.transports.grpc import GRPCTransport

            adapter = GRPCTransport(self.host, self._options.grpc, self._reactor, self._protos)
            for service in self._services:
                adapter.add(service)
            return adapter
        if wire == "tcp":
            from storagegate.gateway.transports.tcp.listener import TCPTransport

            return TCPTransport(self.host, self._options.tcp, self._reactor)
        from storagegate.gateway.transports.udp.listener import UDPTransport

        answers = None if self._makeAnswers is None else self._makeAnswers()
        return UDPTransport(self.host, self._options.udp, self._reactor, answers, self._turn)

    async def close(self, graceSeconds: float, patienceSeconds: float = 0.0) -> None:
        """
        Close every wire at once, each with the same grace; what fails is logged.

        @param patienceSeconds: How long clients are still served that are with this process, where
            another one serves the same places.
        """
        times = (graceSeconds, patienceSeconds)
        closing = {name: partial(each.close, *times) for name, each in self._others.items()}
        if self._websocket is not None:
            closing["websocket"] = partial(self._websocket.close, *times)
        if self._application is not None:
            milliseconds = (int(each * 1000) for each in times)
            closing["http"] = partial(self._application.close, *milliseconds)
        self._others, self._application = {}, None
        self.ports.clear()
        late: list[Deferred[Any]] = []

        def close(name: str, closeWire: Callable[[], Any]) -> Deferred[Any]:
            return maybeDeferred(closeWire).addErrback(self._failed, name)

        # The connections of HTTP may still ask for the first WebSocket.
        self._closeLate = lambda adapter: late.append(
            close("websocket", partial(adapter.close, *times))
        )
        await gatherResults([close(*each) for each in closing.items()])
        await gatherResults(late)
        self._closeLate = self._websocket = None

    def _failed(self, failure: Any, name: str) -> None:
        _log.failure("the wire {name} did not close in order", failure, name=name)
