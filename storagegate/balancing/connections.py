"""The connections to one instance: made when a call needs one, kept for the next, and closed."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from storagegate.balancing.securing import Securing
from storagegate.balancing.wire import HTTPConnection
from storagegate.discovery.instances import Instance

IDLE_SECONDS = 3.0
"""How long a connection is kept that has nothing to do: less than the 5 s after which the other
end, a gateway like this one, closes it. A call that meets the closing is lost."""

MAX_IDLE = 32
"""How many of them: what a busy instance has from one moment to the next."""

Connect = Callable[[Instance], Deferred[HTTPConnection]]
"""Makes a connection. Fails if there is none, or after a time."""


def connector(reactor: Any, seconds: float, securing: Securing | None = None) -> Connect:
    """
    Make what connects to instances.

    @param seconds: How long a connection may take, with the handshake of TLS.
    @param securing: Knows with whom to speak TLS; C{None} for nobody.
    """
    factory = Factory.forProtocol(HTTPConnection)
    factory.noisy = False

    def connect(instance: Instance) -> Deferred[Any]:
        endpoint = HostnameEndpoint(reactor, instance.host, instance.port, seconds)
        if securing is not None and securing.isFor(instance):
            connecting = securing.connect(endpoint, instance, seconds)
        else:
            connecting = endpoint.connect(factory)
        return connecting.addErrback(_cancelled)

    return connect


def _cancelled(failure: Failure) -> Failure:
    """Say of an attempt that was cancelled what Deferreds say: nobody wants another one."""
    return Failure(CancelledError()) if failure.check(ConnectingCancelledError) else failure


class Connections:
    """
    The connections to one instance.

    The one that was used last is the next: the others end by themselves when there is less to do.
    """

    def __init__(self, instance: Instance, connect: Connect, clock: IReactorTime) -> None:
        self._instance = instance
        self._connect = connect
        self._clock = clock
        # Those with nothing to do, each with what will close it.
        self._idle: dict[HTTPConnection, Any] = {}
        self._all: set[HTTPConnection] = set()
        self._isClosed = False
        self._closed: list[Deferred[None]] = []

    @property
    def count(self) -> int:
        """Count the connections."""
        return len(self._all)

    def take(self) -> Deferred[HTTPConnection]:
        """
        Give a connection with nothing to do.

        @return: Fails if none can be made: then nothing was sent.
        """
        while self._idle:
            connection, timer = self._idle.popitem()
            timer.cancel()
            if connection.isAlive():
                return succeed(connection)
            connection.abort()
        return self._connect(self._instance).addCallback(self._made)

    def close(self) -> Deferred[None]:
        """Close those with nothing to do, and the others as soon as their calls end."""
        self._isClosed = True
        for connection in list(self._idle):
            self._forgetIdle(connection)
            connection.abort()
        return self._whenGone()

    def abort(self) -> Deferred[None]:
        """Close all of them at once."""
        self._isClosed = True
        for connection in list(self._all):
            self._forgetIdle(connection)
            connection.abort()
        return self._whenGone()

    def _made(self, connection: HTTPConnection) -> HTTPConnection:
        self._all.add(connection)
        connection.whenFree = self._free
        connection.whenLost = self._lost
        return connection

    def _free(self, connection: HTTPConnection) -> None:
        if self._isClosed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        self._idle[connection] = self._clock.callLater(IDLE_SECONDS, connection.abort)

    def _lost(self, connection: HTTPConnection) -> None:
        self._all.discard(connection)
        self._forgetIdle(connection)
        if not self._all:
            closed, self._closed = self._closed, []
            for each in closed:
                each.callback(None)

    def _forgetIdle(self, connection: HTTPConnection) -> None:
        timer = self._idle.pop(connection, None)
        if timer is not None and timer.active():
            timer.cancel()

    def _whenGone(self) -> Deferred[None]:
        if not self._all:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._closed.append(gone)
        return gone
