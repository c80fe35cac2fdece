"""
A request and its response, as our own resources see them.

Lean on purpose: slots, nothing parsed that nobody asked for, one write for a small response.
Whatever else C{IRequest} has comes from a stock Twisted request that is made on first use, see
L{Request.web}.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from zope.interface import classImplements

from storagegate.net.httpbody import RequestBody
from storagegate.net.httperrors import BodyLost
from storagegate.net.httphead import RequestHead
from storagegate.net.interfaces import IForeignReply, IRequestChannel
from storagegate.net.reply import Reply

_log = Logger()


class Request(Reply):
    """
    One request.

    Header names are lower case, values C{bytes} as received.

    @ivar uri: The target in origin form, raw.
    @ivar path: C{uri} up to the question mark, raw.
    @ivar queryString: C{uri} after it, raw.
    @ivar headers: Repeated fields joined by commas, Cookie by semicolons.
    @ivar headerList: The fields in their order.
    @ivar contentLength: C{None} if the body is chunked, 0 if there is none.
    @ivar body: The body, perhaps still coming.
    @ivar lostReason: Why the client was lost.
    """

    __slots__ = (
        "_web",
        "body",
        "contentLength",
        "headerList",
        "headers",
        "lostReason",
        "path",
        "queryString",
        "uri",
        "wireObserver",
    )

    def __init__(self, channel: IRequestChannel, head: RequestHead, body: RequestBody) -> None:
        super().__init__(channel, head.method, head.version)
        self.uri = head.uri
        self.path = head.path
        self.queryString = head.queryString
        self.headers = head.headers
        self.headerList = head.headerList
        self.contentLength = head.contentLength
        self.body = body
        self.lostReason: Failure | None = None
        self.wireObserver: Callable[[bool], None] | None = None
        self._web: Any = None

    @property
    def secure(self) -> bool:
        """Say whether the connection is encrypted."""
        secure: bool = self._channel.wire.secure
        return secure

    @property
    def clientHost(self) -> str:
        """Give the client's address, C{''} for a UNIX socket."""
        host: str = self._channel.wire.clientHost
        return host

    @property
    def clientPort(self) -> int:
        """Give the client's port, 0 for a UNIX socket."""
        port: int = self._channel.wire.clientPort
        return port

    # The connection

    def onDisconnect(self, callback: Callable[[], None]) -> None:
        """Call C{callback} if the client is lost before the response is complete, or is already."""
        if self.disconnected:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def takeTransport(self) -> tuple[Any, bytes]:
        """
        Take the connection over, for another protocol.

        The request is over with that; whoever takes the transport answers it.

        @return: The transport, and the bytes that came after the request.
        """
        taken = self._channel.takeTransport()
        self.started = self.finished = True
        self.noteEnd()
        return taken

    def upgrade(self, protocol: IProtocol) -> None:
        """Let C{protocol} have the connection, and the bytes that came after the request."""
        transport, leftover = self.takeTransport()
        # TLS wraps the protocol it delivers to; elsewhere the transport delivers to it itself.
        if hasattr(transport, "wrappedProtocol"):
            transport.wrappedProtocol = protocol
        else:
            transport.protocol = protocol
        protocol.makeConnection(transport)
        if leftover:
            protocol.dataReceived(leftover)

    # For the channel

    def connectionLost(self, reason: Failure, bodyError: BodyLost) -> None:
        """Let the body's reader, the writer and whoever asked know that the client is gone."""
        self.disconnected = True
        self.lostReason = reason
        self.body.fail(bodyError)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            # Not an error, which nobody may be waiting for: the next send raises ClientLost.
            waiter.callback(None)
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:
                # The others have work of their own to end.
                _log.failure("a listener to the loss of a client failed")
        # Last: whoever answers has learnt of it, and has counted what was sent.
        self.noteEnd()

    def wireChanged(self, full: bool) -> None:
        """Pause and resume whoever writes."""
        waiter = self._waiter
        if waiter is not None and not full:
            self._waiter = None
            waiter.callback(None)
        if self.wireObserver is not None:
            self.wireObserver(full)

    # For stock Twisted code

    @property
    def web(self) -> Any:
        """Give the stock C{twisted.web.server.Request} that stands for this one."""
        if self._web is None:
            self._web = self._channel.owner.webRequest(self)
        return self._web

    def __getattr__(self, name: str) -> Any:
        """Give the rest of C{IRequest} from L{web}."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.web, name)

    @property
    def channel(self) -> IRequestChannel:
        """Give the connection, as C{IRequest} has it."""
        return self._channel


# By attribute access: most of the interface is found through __getattr__.
classImplements(Request, IRequest, IForeignReply)
