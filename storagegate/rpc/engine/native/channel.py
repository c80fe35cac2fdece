"""
A client's channel to one server on the project's own HTTP/2.

It is in one of these states::

    idle        no connection                         the next call connects
    connecting  until the server has sent SETTINGS    calls wait
    ready       calls begin, as many at a time as the server accepts; others wait
    backoff     the last attempt has failed           calls fail, unless they wait for a connection

A connection whose server sends GOAWAY ends its calls, while the channel connects again. The delay
between attempts is as specified in
U{https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md}; it begins anew once a server
has answered a call.
"""

import random
from collections.abc import Callable
from math import inf
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.backoff import Backoff, Uniform
from storagegate.core.errors import GRPC_STATUSES
from storagegate.core.heldbytes import PROCESS_BUDGET
from storagegate.core.streams import SharedFuture
from storagegate.net.http2.interfaces import ErrorCode, HTTP2Error, HTTP2Limits
from storagegate.net.scheduling import InputScheduler
from storagegate.net.tls import ServerContext, contextFromPEM
from storagegate.rpc.credentials import GRPCClientTLS
from storagegate.rpc.engine.native.clientcall import NativeClientCall
from storagegate.rpc.engine.native.clientconnection import ChannelOptions, NativeClientConnection
from storagegate.rpc.engine.native.resources import RPCResources, messageLimits
from storagegate.rpc.engine.native.response import RPCStatus
from storagegate.rpc.engine.native.target import readTarget
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    CallOptions,
    ClientClosedError,
    IClientEngine,
    NullByteCounter,
    UnaryResult,
)

_CONNECT_SECONDS = 20.0
"""The time for a connection with its handshakes, as grpc core's."""

_BACKOFF = Backoff(firstSeconds=1.0, maxSeconds=120.0, jitter=0.2, factor=1.6)
"""The delay between attempts to connect."""

_MOST_WAITING = 20_000
"""Calls that wait for a connection or a stream: without their messages, 30 MB."""

_WAITING_BYTES = 64 * 1024 * 1024
"""The bytes of the messages of calls that wait: sixteen of the longest."""

_IDLE_SECONDS = 1800.0
"""The time without a call after which grpc core closes a connection."""

_LIMITS = HTTP2Limits(
    # Four times the first window, for a line of some delay; what a reader leaves unread takes that.
    streamWindow=256 * 1024,
    connectionWindow=4 * 1024 * 1024,
    # A server that sends many frames without work costs time, and nothing else.
    control=10_000,
    controlRate=2000,
)

_log = Logger()


def channelOptions(options: Any) -> ChannelOptions:
    """
    Return the pings and the idle time, with grpc core's defaults.

    @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
    """

    def seconds(value: int | None, default: float) -> float:
        return default if value is None else value / 1000

    return ChannelOptions(
        keepalive=seconds(options.keepaliveTimeMs, inf),
        keepaliveTimeout=seconds(options.keepaliveTimeoutMs, 20.0),
        pingsWithoutCalls=bool(options.keepalivePermitWithoutCalls),
        idle=seconds(options.maxConnectionIdle, _IDLE_SECONDS),
    )


@implementer(IClientEngine)
class NativeChannel:
    """
    A channel to one server.

    @ivar isClosed: Whether the channel is closed to new calls.
    @ivar counted: See L{IClientEngine}.
    @ivar target: The address of the server.
    @ivar authority: The value of C{:authority}.
    @ivar context: The context of TLS; C{None} for plain text.
    @ivar options: The pings and the idle time of connections.
    @ivar limits: The limits of HTTP/2.
    @ivar resources: The limits and timers of calls.
    @ivar scheduler: Divides time between the connections.
    @ivar closed: The status of calls when the channel is closed.
    @ivar waiting: The calls that wait for a connection or a stream, in their order.
    @ivar failures: How many attempts in a row gave no connection that answered a call.
    """

    def __init__(
        self,
        target: str,
        tls: GRPCClientTLS | None,
        options: Any,
        reactor: Any,
        uniform: Uniform = random.uniform,
    ) -> None:
        """
        @param target: The server, see L{readTarget}.
        @param tls: C{None} for plain text.
        @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
        @param reactor: Provides C{IReactorTCP}, C{IReactorUNIX}, C{IReactorTime} and
            C{IReactorFromThreads}.
        @raise ValueError: If the target or the certificates cannot be used.
        """
        self.isClosed = False
        self.limits = _LIMITS
        self.closed = RPCStatus(GRPC_STATUSES["CANCELLED"], CANCELLED_MESSAGE)
        self.counted: set[str] = set()
        self.target = readTarget(target)
        self.context: ServerContext | None = None
        name = None if tls is None else tls.serverName
        if tls is not None:
            pair = None if tls.chain is None or tls.key is None else (tls.chain, tls.key)
            host = name or self.target.host.partition("%")[0].rstrip(".")
            self.context = contextFromPEM(host, tls.roots, pair, [b"h2"])
        self.authority = (name or self.target.authority).encode()
        self.options = channelOptions(options)
        self.resources = RPCResources(
            messageLimits(options), reactor, NullByteCounter(), PROCESS_BUDGET
        )
        self.scheduler = InputScheduler(reactor)
        self.waiting: dict[NativeClientCall, None] = {}
        self.failures = 0
        self._waitingBytes = 0
        self._reactor = reactor
        self._uniform = uniform
        self._connection: NativeClientConnection | None = None
        # Including those that begin no more calls.
        self._connections: set[NativeClientConnection] = set()
        self._attempt: Deferred[None] | None = None
        self._pause: Any = None
        self._problem = RPCStatus(GRPC_STATUSES["UNAVAILABLE"], "")
        self._gone: SharedFuture[None] = SharedFuture()
        self._factory = Factory.forProtocol(lambda: NativeClientConnection(self))
        self._factory.noisy = False

    # Calls

    def call(
        self, path: str, options: CallOptions, request: bytes | None = None
    ) -> NativeClientCall:
        """Begin a call."""
        if self.isClosed:
            raise ClientClosedError("the client is closed")
        call = NativeClientCall(self, path, options, request)
        self._begin(call)
        return call

    def exchange(
        self,
        path: str,
        options: CallOptions,
        request: bytes,
        done: Callable[[UnaryResult], object],
    ) -> Callable[[], None]:
        """Make a unary call; a second response is an error."""
        call = self.call(path, options, request)
        call.collect(done)
        return call.cancel

    def _begin(self, call: NativeClientCall) -> None:
        if call.isLate:
            call.expire()
            return
        error = call.tooLong()
        if error is not None:
            call.end(RPCStatus(error.status, error.message))
            return
        connection = self._connection
        if connection is not None and not self.waiting and connection.mayOpen:
            connection.open(call)
        else:
            self.wait(call)

    def wait(self, call: NativeClientCall) -> None:
        """Let a call wait for a connection or a stream."""
        if self._pause is not None and not call.waitsForReady:
            call.end(self._problem)
            return
        if len(self.waiting) >= _MOST_WAITING or self._waitingBytes >= _WAITING_BYTES:
            status = GRPC_STATUSES["RESOURCE_EXHAUSTED"]
            text = f"{len(self.waiting)} calls wait for {self.target.text}"
            call.end(RPCStatus(status, text))
            return
        self.waiting[call] = None
        self._waitingBytes += call.keptBytes
        self._connectIfNeeded()

    def openWaiting(self) -> None:
        """Begin as many of the calls that wait as the connection accepts."""
        connection = self._connection
        while self.waiting and connection is not None and connection.mayOpen:
            call = next(iter(self.waiting))
            self.forget(call)
            connection.open(call)

    def held(self, size: int) -> None:
        """Count bytes of the messages of a call that waits."""
        self._waitingBytes += size

    def forget(self, call: NativeClientCall) -> None:
        """Remove a call from those that wait."""
        if self.waiting.pop(call, self) is None:
            self._waitingBytes -= call.keptBytes

    # Connections

    def _connectIfNeeded(self) -> None:
        if (
            self.waiting
            and self._connection is None
            and self._attempt is None
            and self._pause is None
            and not self.isClosed
        ):
            attempt = self._attempt = Deferred.fromCoroutine(self._connect())
            if attempt.called:
                self._attempt = None

    async def _connect(self) -> None:
        """Connect, or fail the calls that do not wait for a connection."""
        try:
            connection = await self._establish()
        except CancelledError:
            return
        except Exception as error:
            self._attempt = None
            if not self.isClosed:
                self._failed(error)
        else:
            self._attempt = None
            self._connection = connection
            self.openWaiting()
            if connection.core.isRetired:
                self.retire(connection)

    async def _establish(self) -> NativeClientConnection:
        """
        Make a connection whose server has sent its settings.

        @raise Exception: If there is none; the type varies.
        """
        reactor, context = self._reactor, self.context
        begun = reactor.seconds()
        endpoint = self.target.endpoint(reactor, _CONNECT_SECONDS)
        if context is None:
            connection: NativeClientConnection = await endpoint.connect(self._factory)
        else:
            # Imported late: OpenSSL takes megabytes.
            from storagegate.net.http.clientconnection import openConnection

            connection = await openConnection(
                endpoint, reactor, _CONNECT_SECONDS, context, factory=self._factory
            )
            if connection.transport.negotiatedProtocol != b"h2":  # type: ignore[union-attr]
                connection.abort()
                raise ConnectionError("the server offers no HTTP/2 by ALPN")
        self._connections.add(connection)
        connection.begin()
        left = max(0.0, _CONNECT_SECONDS - (reactor.seconds() - begun))
        try:
            await connection.greeted.wait().addTimeout(left, reactor)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _failed(self, error: Exception) -> None:
        """Fail the calls that do not wait, and wait before the next attempt."""
        text = error.text if isinstance(error, HTTP2Error) else str(error) or type(error).__name__
        self._problem = RPCStatus(
            GRPC_STATUSES["UNAVAILABLE"], f"failed to connect to {self.target.text}: {text}"
        )
        delay = _BACKOFF.seconds(self.failures, self._uniform)
        self.failures += 1
        self._pause = self._reactor.callLater(delay, self._endPause)
        for call in list(self.waiting):
            if not call.waitsForReady:
                call.end(self._problem)

    def _endPause(self) -> None:
        self._pause = None
        self._connectIfNeeded()

    def retire(self, connection: NativeClientConnection) -> None:
        """Begin no more calls on a connection; those that it has go on."""
        if connection is not self._connection:
            return
        self._connection = None
        code, text = connection.core.peerFailure
        if code == ErrorCode.ENHANCE_YOUR_CALM and text == b"too_many_pings":
            # As the specification of keepalive demands.
            self.options = ChannelOptions(
                self.options.keepalive * 2,
                self.options.keepaliveTimeout,
                self.options.pingsWithoutCalls,
                self.options.idle,
            )
            _log.warn("{server} gets too many pings: half as many follow", server=self.target.text)
        self._reconnect()

    def _reconnect(self) -> None:
        """Connect again, after a delay if the last connection has answered no call."""
        if self.waiting and not self.isClosed:
            if self.failures:
                self._failed(ConnectionError("the server closes its connections"))
            else:
                # Until a call is answered.
                self.failures = 1
                self._connectIfNeeded()

    def lost(self, connection: NativeClientConnection) -> None:
        """Forget a connection, whose calls end."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        if connection is self._connection:
            self._connection = None
            self._reconnect()
        self._checkGone()

    # The end

    def close(self) -> Deferred[None]:
        """Cancel the calls in flight; release the connection."""
        if not self.isClosed:
            self.isClosed = True
            if self._pause is not None:
                self._pause.cancel()
            if self._attempt is not None:
                attempt, self._attempt = self._attempt, None
                attempt.cancel()
            for call in list(self.waiting):
                call.end(self.closed)
            self._connection = None
            for connection in list(self._connections):
                connection.cancelCalls()
            self.resources.deadlines.close()
            self._checkGone()
        return self._gone.wait()

    def _checkGone(self) -> None:
        if self.isClosed and not self._connections:
            self._gone.set(None)
