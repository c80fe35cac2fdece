"""
The connections to one instance: made when a call needs one, kept for the next, and closed.

TLS to the instances of a service. The handshake ends before a call is sent: whatever is wrong with
it, nothing of the call has left this process.
"""

from collections.abc import Callable
from socket import MSG_PEEK
from typing import Any

from OpenSSL.SSL import Error as TLSError
from OpenSSL.SSL import WantReadError
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IHandshakeListener, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.ssl import VerificationError
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.http.client import HTTPClientConnection
from storagegate.net.tls import ClientTLS, InstanceTLSOptions, expectedName
from storagegate.upstream.instances import Instance
from storagegate.upstream.options import DiscoveredService
from storagegate.upstream.provider import ProblemReporter

# What a server says that does not know its client, and so has read nothing of it. Of TLS 1.3 the
# client hears it after its own end of the handshake, when the request is under way.
_STRANGER = ("certificate", "unknown ca", "access denied", "decrypt error")

_log = Logger()


class TLSConnector:
    """Secures the connections to the instances of one service."""

    def __init__(
        self,
        service: str,
        options: DiscoveredService,
        clock: IReactorTime,
        name: str | None = None,
    ) -> None:
        """
        @param name: Whom instances must prove to be where the options do not say; C{None} for the
            host of each.
        """
        tls = options.tls or InstanceTLSOptions()
        self._service = service
        self._isMeant = options.tls is not None
        self._options = tls
        self._name = name
        self._tls = ClientTLS(service, tls)
        self._clock = clock
        self._trouble = ProblemReporter("TLS to instances", clock.seconds)

    def check(self) -> None:
        """
        Read the files, if they are to be used.

        @raise OptionError: If one of them cannot be.
        """
        if self._isMeant:
            self._tls.check()

    def warn(self) -> None:
        """Say so if certificates are not checked."""
        if not self._options.verify:
            _log.warn(
                "services.{service}.tls.verify is false: no certificate of its instances is "
                "checked, and anybody on the way can read and change calls",
                service=self._service,
            )

    def isFor(self, instance: Instance) -> bool:
        """Tell whether an instance is to be spoken to over TLS."""
        return self._isMeant if instance.tls is None else instance.tls

    def connect(self, endpoint: Any, instance: Instance, seconds: float) -> Deferred[Any]:
        """
        Connect, and shake hands.

        @param endpoint: The way to the instance, without TLS.
        @param seconds: How long both may take together.
        """
        return Deferred.fromCoroutine(self._connect(endpoint, instance, seconds))

    async def _connect(self, endpoint: Any, instance: Instance, seconds: float) -> Any:
        began = self._clock.seconds()
        try:
            creator = self._tls.creator(expectedName(self._options, self._name or instance.host))
        except UnicodeError as error:
            self._complain(instance, error)
            raise
        secured = wrapClientTLS(creator, endpoint, self._clock)
        connection: Any = await secured.connect(_factory)
        left = max(0.0, seconds - (self._clock.seconds() - began))
        try:
            await connection.whenShaken().addTimeout(left, self._clock)
        except CancelledError:
            raise
        except Exception as error:
            self._complain(instance, error)
            raise
        return connection

    def _complain(self, instance: Instance, error: Exception) -> None:
        """Tell the operator what is wrong: the caller is not told."""
        self._trouble.begin(self._service, f"{instance.id}: {explained(error)}")


@implementer(IHandshakeListener)
class SecuredConnection(HTTPClientConnection):
    """A connection over TLS."""

    def __init__(self) -> None:
        super().__init__()
        self._isShaken = False
        self._hasAnswered = False
        self._ended: Failure | None = None
        self._shaking: Deferred[None] | None = None

    def whenShaken(self) -> Deferred[None]:
        """Wait until the other end has proved to be who it should be."""
        if self._isShaken:
            return succeed(None)
        if self._ended is not None:
            return fail(self._ended)
        self._shaking = Deferred(lambda shaking: self.abort())
        return self._shaking

    def handshakeCompleted(self) -> None:
        """Take note that it has."""
        self._isShaken = True
        if self._shaking is not None and not self._shaking.called:
            self._shaking.callback(None)

    def dataReceived(self, data: bytes) -> None:
        """Take bytes of a response."""
        self._hasAnswered = True
        super().dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Take note of the end."""
        self._ended = reason
        super().connectionLost(reason)
        if self._shaking is not None and not self._shaking.called:
            self._shaking.errback(reason)

    def isAlive(self) -> bool:
        """
        Tell whether the instance has left the connection open, as far as this machine knows.

        What it has said last may have been read from the socket together with its answer.
        """
        if not super().isAlive():
            return False
        try:
            self.transport.getHandle().recv(1, MSG_PEEK)  # type: ignore[union-attr]
        except WantReadError:
            return True
        except TLSError:
            return False
        return False

    def isUnread(self, reason: Failure) -> bool:
        """Tell whether the other end has refused us, and so read nothing of what we sent."""
        return not self._hasAnswered and refuses(reason.value)

    def socket(self) -> Any:
        """Give the socket below TLS."""
        return self.transport.transport.getHandle()  # type: ignore[union-attr]


_factory = Factory.forProtocol(SecuredConnection)
_factory.noisy = False


def refuses(error: BaseException | None) -> bool:
    """Tell whether an error is the alert of a server that does not know its client."""
    text = explained(error) if isinstance(error, TLSError) else ""
    return " alert " in text and any(words in text for words in _STRANGER)


def explained(error: BaseException | None) -> str:
    """Say what is wrong with a handshake."""
    if isinstance(error, VerificationError):
        return "the certificate is for another name"
    if isinstance(error, TLSError) and error.args and error.args[0]:
        # The queue of OpenSSL: of each error the library, the function, and what is wrong.
        return str(error.args[0][-1][-1])
    return f"{type(error).__name__}: {error!s:.100}"


IDLE_SECONDS = 3.0
"""How long a connection is kept that has nothing to do: less than the 5 s after which the other
end, a gateway like this one, closes it. A call that meets the closing is lost."""

MAX_IDLE = 32
"""How many of them: what a busy instance has from one moment to the next."""

Connect = Callable[[Instance], Deferred[HTTPClientConnection]]
"""Makes a connection. Fails if there is none, or after a time."""


def connector(reactor: Any, seconds: float, securing: TLSConnector | None = None) -> Connect:
    """
    Make what connects to instances.

    @param seconds: How long a connection may take, with the handshake of TLS.
    @param securing: Knows with whom to speak TLS; C{None} for nobody.
    """
    factory = Factory.forProtocol(HTTPClientConnection)
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
        self._idle: dict[HTTPClientConnection, Any] = {}
        self._all: set[HTTPClientConnection] = set()
        self._isClosed = False
        self._closed: list[Deferred[None]] = []

    @property
    def count(self) -> int:
        """Count the connections."""
        return len(self._all)

    def take(self) -> Deferred[HTTPClientConnection]:
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

    def _made(self, connection: HTTPClientConnection) -> HTTPClientConnection:
        self._all.add(connection)
        connection.whenFree = self._free
        connection.whenLost = self._lost
        return connection

    def _free(self, connection: HTTPClientConnection) -> None:
        if self._isClosed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        self._idle[connection] = self._clock.callLater(IDLE_SECONDS, connection.abort)

    def _lost(self, connection: HTTPClientConnection) -> None:
        self._all.discard(connection)
        self._forgetIdle(connection)
        if not self._all:
            closed, self._closed = self._closed, []
            for each in closed:
                each.callback(None)

    def _forgetIdle(self, connection: HTTPClientConnection) -> None:
        timer = self._idle.pop(connection, None)
        if timer is not None and timer.active():
            timer.cancel()

    def _whenGone(self) -> Deferred[None]:
        if not self._all:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._closed.append(gone)
        return gone
