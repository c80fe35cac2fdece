"""
TLS to the instances of a service. The handshake ends before a call is sent: whatever is wrong with
it, nothing of the call has left this process.
"""

from socket import MSG_PEEK
from typing import Any

from OpenSSL.SSL import Error as TLSError
from OpenSSL.SSL import WantReadError
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.interfaces import IHandshakeListener, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.ssl import VerificationError
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.balancing.clienttls import ClientTLS
from storagegate.balancing.wire import HTTPConnection
from storagegate.discovery.instances import Instance
from storagegate.discovery.services import DiscoveredService
from storagegate.discovery.tls import expectedName
from storagegate.discovery.tlsoptions import InstanceTLSOptions
from storagegate.discovery.trouble import Trouble

# What a server says that does not know its client, and so has read nothing of it. Of TLS 1.3 the
# client hears it after its own end of the handshake, when the request is under way.
_STRANGER = ("certificate", "unknown ca", "access denied", "decrypt error")

_log = Logger()


class Securing:
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
        self._trouble = Trouble("TLS to instances", clock.seconds)

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
class SecuredConnection(HTTPConnection):
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
