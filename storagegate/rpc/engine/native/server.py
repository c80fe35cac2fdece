"""The port of a gRPC server on the project's own HTTP/2."""

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IProtocolNegotiationFactory
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.heldbytes import HeldBytes
from storagegate.core.shares import AddressShares, shareOf
from storagegate.net.endpoints import findAddresses
from storagegate.net.http2.interfaces import HTTP2Limits
from storagegate.net.scheduling import InputScheduler
from storagegate.net.tls import CertificateFiles, ServerTLSOptions
from storagegate.net.transport import FastPort, FastUnixPort, SharedFastPort, pollDirectly
from storagegate.rpc.engine.native.connection import ConnectionOptions, NativeConnection
from storagegate.rpc.engine.native.resources import messageLimits
from storagegate.rpc.engine.native.service import CallService
from storagegate.rpc.interfaces import IServerEngine, MessageByteCounter

_MAX_LENGTH = 2**31 - 1

_MOST_STREAMS = 10_000
"""Concurrent calls of a connection without an option: ten times those of a server."""

_UNIX = "unix:"

_CHECK_SECONDS = 1.0


def connectionOptions(options: Any) -> ConnectionOptions:
    """
    Return the pings and ages of connections, with grpc core's defaults.

    @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
    """

    def seconds(value: int | None, default: float) -> float:
        return default if value is None else value / 1000

    strikes = options.http2MaxPingStrikes
    return ConnectionOptions(
        keepalive=seconds(options.keepaliveTimeMs, 7200.0),
        keepaliveTimeout=seconds(options.keepaliveTimeoutMs, 60.0),
        pingsWithoutCalls=bool(options.keepalivePermitWithoutCalls),
        leastPing=seconds(options.http2MinTimeBetweenPingsMs, 300.0),
        pingStrikes=2 if strikes is None else strikes,
        idle=seconds(options.maxConnectionIdle, inf),
        age=seconds(options.maxConnectionAge, inf),
        ageGrace=seconds(options.maxConnectionAgeGrace, inf),
    )


def protocolLimits(options: Any) -> HTTP2Limits:
    """
    Return the limits of HTTP/2.

    @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
    """
    own = HTTP2Limits()
    metadata = options.maxMetadataSize
    return HTTP2Limits(
        streams=options.maxConcurrentStreams or _MOST_STREAMS,
        # The hard limit, as with grpc core.
        headerList=own.headerList if metadata is None else 2 * metadata,
        headerBlock=max(own.headerBlock, 2 * (metadata or 0)),
    )


@implementer(IServerEngine, IProtocolNegotiationFactory)
class NativeServer(Factory):
    """
    A server, see L{IServerEngine}.

    A stop loses no call: a connection accepts the calls that its client makes before it hears of
    the end. So responses are not held while the server settles.

    @ivar service: The state that all calls share.
    @ivar options: The pings and ages of connections.
    @ivar scheduler: Divides time between the connections.
    @ivar certificates: The TLS certificates; C{None} without TLS.
    @ivar isStopping: Whether connections accept no more calls.
    """

    noisy = False

    def __init__(
        self, reactor: Any, options: Any, traffic: MessageByteCounter, budget: HeldBytes
    ) -> None:
        """
        @param reactor: Provides C{IReactorTCP}, C{IReactorUNIX} and C{IReactorTime}.
        @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
        @param budget: Counts the bytes of incomplete messages.
        """
        self.service = CallService(messageLimits(options), reactor, traffic, budget)
        self.options = connectionOptions(options)
        self.scheduler = InputScheduler(reactor)
        self.certificates: CertificateFiles | None = None
        self._limits = protocolLimits(options)
        self._isShared: bool = options.reusePort
        self._maxConnections: int = options.maxConnections or _MAX_LENGTH
        self._connectionShare = shareOf(self._maxConnections)
        self._shares = AddressShares()
        self._reactor = reactor
        self._port: Any = None
        self._connections: set[NativeConnection] = set()
        self.isStopping = self._hasEnded = False
        self._settling: Any = None
        self._grace: Any = None
        self._waiting: list[Deferred[None]] = []
        self._watch = LoopingCall(self._checkTimeouts)
        self._watch.clock = reactor
        self._checked = 0.0

    def acceptableProtocols(self) -> list[bytes]:
        """Return the protocols of TLS."""
        return [b"h2"]

    def buildProtocol(self, address: IAddress | None) -> NativeConnection:
        """Make the protocol of a connection."""
        return NativeConnection(self, self._limits)

    def bind(self, address: str, tls: ServerTLSOptions | None = None) -> int:
        """
        Bind the port; it listens from L{start} on.

        @param address: C{host:port}, C{[::1]:port} or C{unix:path}.
        @param tls: C{None} for plain text.
        @return: The port; 1 for a UNIX socket.
        @raise CannotListenError: If the address is taken or invalid.
        @raise OptionError: If a file cannot be used.
        """
        factory: Any = self
        if tls is not None:
            # Imported late: OpenSSL takes megabytes.
            from storagegate.net.certificates import withOptions
            from storagegate.net.tlsserver import ServerTLSFactory

            self.certificates = withOptions(tls)
            factory = ServerTLSFactory(self.certificates, False, self, self._reactor)
        pollDirectly(self._reactor)
        port: Any
        if address.startswith(_UNIX):
            path = address.removeprefix(_UNIX)
            _removeSocket(path)
            port = FastUnixPort(os.fsencode(path), factory, reactor=self._reactor)
        else:
            host, _, number = address.rpartition(":")
            try:
                found = findAddresses(host.strip("[]"), int(number), socket.AI_PASSIVE)
            except OSError as error:
                raise CannotListenError(host, int(number), error) from error
            make = SharedFastPort if self._isShared else FastPort
            port = make(int(number), factory, 0, found[0][4][0], self._reactor)
        port.hold()
        port.startListening()
        self._port = port
        return 1 if address.startswith(_UNIX) else int(port.getHost().port)

    def start(self, accept: Callable[[Any], object]) -> None:
        """Start accepting calls."""
        self.service.accepted = accept
        self._port.beginListening()

    def discard(self) -> None:
        """Release everything if L{start} was never called."""
        if self._port is not None:
            self._port.connectionLost(Failure(CONNECTION_DONE))
            self._port = None

    def stop(self, graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """Accept nothing more, let calls end, and cancel the remaining calls after the grace."""
        if self.isStopping:
            sooner = self._reactor.seconds() + graceSeconds
            if self._grace.active() and sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)
        elif settleSeconds and self._settling is None:
            self._settling = self._reactor.callLater(settleSeconds, self._beginStop, graceSeconds)
        elif not settleSeconds:
            self._beginStop(graceSeconds)
        done: Deferred[None] = Deferred()
        if self._hasEnded:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    def _beginStop(self, graceSeconds: float) -> None:
        self.isStopping = True
        if self._settling is not None and self._settling.active():
            self._settling.cancel()
        self._grace = self._reactor.callLater(graceSeconds, self._cancelCalls)
        # The port accepts the connections that wait, and closes in the next iteration.
        closed = self._port.stopListening()
        closed.addCallback(lambda ignored: self._drain())

    def _drain(self) -> None:
        self._port = None
        for connection in list(self._connections):
            connection.drain()
        if not self._grace.active():
            # Some may have been accepted since it ended.
            self._cancelCalls()
        self._checkEnd()

    def _cancelCalls(self) -> None:
        for connection in list(self._connections):
            connection.cancelCalls()

    def _checkEnd(self) -> None:
        """Fire the Deferreds of L{stop} if no connection or port is left."""
        if not self.isStopping or self._port is not None or self._connections or self._hasEnded:
            return
        self._hasEnded = True
        if self._grace.active():
            self._grace.cancel()
        self.service.deadlines.close()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)

    def connections(self) -> int:
        """Count the open connections."""
        return len(self._connections)

    # For connections

    def opened(self, connection: NativeConnection) -> bool:
        """Count a new connection, and return whether it may stay."""
        host = getattr(connection.transport.getPeer(), "host", "")  # type: ignore[union-attr]
        share = self._shares.of(host)
        isGreedy = share.connections >= self._connectionShare
        if isGreedy or len(self._connections) >= self._maxConnections:
            return False
        connection.share = share
        share.connections += 1
        self._connections.add(connection)
        if not self._watch.running:
            self._checked = self._reactor.seconds()
            self._watch.start(_CHECK_SECONDS, now=False)
        return True

    def closed(self, connection: NativeConnection) -> None:
        """Forget a connection."""
        if connection in self._connections:
            self._connections.discard(connection)
            assert connection.share is not None
            connection.share.connections -= 1
        if not self._connections:
            if self._watch.running:
                self._watch.stop()
            self._checkEnd()

    def _checkTimeouts(self) -> None:
        now: float = self._reactor.seconds()
        passed, self._checked = now - self._checked, now
        for connection in list(self._connections):
            connection.checkTimeouts(now, passed)


def _removeSocket(path: str) -> None:
    """Remove a socket that a server has left behind, which the caller has checked."""
    with suppress(OSError, ValueError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
