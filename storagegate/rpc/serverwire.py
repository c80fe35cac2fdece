"""
gRPC on the wire by grpcio: its server, driven without its own Python layer.

C{grpc.server} keeps a thread for each open call and C{grpc.aio} a task; both make several objects
with locks or futures for each message. Here a call is one object whose operations are started by
the reactor thread and whose completions come over L{the bridge<storagegate.rpc.bridge>}. The names
are those of C{grpc._cython.cygrpc}, which both of grpcio's own servers are written on; it has kept
them since 2018, but does not promise to, so L{checkLibrary} looks at them before anything starts.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from grpc._cython import cygrpc
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.rpc.bridge import NOTHING, CompletionPump
from storagegate.rpc.servercall import ServerCall
from storagegate.rpc.serverconnections import COUNTED, ServerConnections
from storagegate.rpc.wire import IServerEngine, Traffic

_REQUESTED_CALLS = 64
"""How many calls grpcio may hand over before it is asked again: what one turn takes."""

_WAITING_CALLS = 3000
"""
How many calls that have come may wait for being asked for: grpc core refuses more. Those that still
wait when it is told to stop it would end as C{CANCELLED}; to ask for so many takes 2 milliseconds.
"""

_TIMEOUT = cygrpc.CompletionType.queue_timeout
_SHUTDOWN = cygrpc.CompletionType.queue_shutdown

_NEW_CALL = object()
_STOPPED = object()


def pollQueue(queue: Any) -> Callable[[float | None], Any]:
    """Give a function that asks a completion queue as the pump wants it."""
    ask = queue.poll

    def poll(deadline: float | None) -> Any:
        event = ask(deadline)
        kind = event.completion_type
        if kind == _TIMEOUT:
            return NOTHING
        return None if kind == _SHUTDOWN else event

    return poll


@implementer(IServerEngine)
class GrpcioServer:
    """
    A server of grpc core, see L{IServerEngine}.

    @ivar isOpen: Whether operations of calls are started at once.
    @ivar traffic: Counts the bytes of messages.
    """

    _log = Logger()

    def __init__(
        self, reactor: Any, arguments: Sequence[tuple[str, Any]], traffic: Traffic
    ) -> None:
        """
        @param reactor: Where calls are accepted.
        @param arguments: The channel arguments of grpc core.
        """
        checkLibrary()
        self.isOpen = True
        self.traffic = traffic
        self._reactor = reactor
        self._queue = cygrpc.CompletionQueue()
        self._connections = ServerConnections()
        self._server = cygrpc.Server((*arguments, COUNTED), False)
        self._connections.find()
        self._server.register_completion_queue(self._queue)
        self._pump = CompletionPump(
            reactor,
            pollQueue(self._queue),
            self._process,
            self._settle,
            self._ended,
            "storagegate-grpc",
        )
        self._unsent: list[ServerCall] = []
        self._accept: Callable[[Any], object] | None = None
        self._isDown = self._isStopping = self._hasEnded = False
        self._held: list[tuple[Any, Sequence[Any], Callable[[Any], object]]] = []
        self._settling: Any = None
        self._waiting: list[Deferred[None]] = []
        self._grace: Any = None
        self._trigger: Any = None

    def bind(self, address: str, credentials: Any = None) -> int:
        """
        Open a port.

        @param address: C{host:port}, C{[::1]:port} or C{unix:path}.
        @param credentials: C{grpc.ServerCredentials}; C{None} for none.
        @return: The port.
        @raise CannotListenError: If it cannot be had.
        """
        host, _, port = address.rpartition(":")
        if host == "unix" and _isServed(port):
            raise CannotListenError(host, port, OSError("another server is there"))
        try:
            if credentials is None:
                bound = self._server.add_http2_port(address.encode())
            else:
                bound = self._server.add_http2_port(address.encode(), credentials._credentials)
        except RuntimeError as error:
            raise CannotListenError(host, port, error) from error
        if not bound:
            raise CannotListenError(host, port, OSError("the address is taken or is none"))
        return int(bound)

    def start(self, accept: Callable[[Any], object]) -> None:
        """Begin to accept calls."""
        self._accept = accept
        self._server.start()
        self._request(_REQUESTED_CALLS)
        self._pump.start()
        self._trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._leave)

    def _request(self, count: int) -> None:
        """Ask for calls."""
        for _ in range(count):
            self._server.request_call(self._queue, self._queue, _NEW_CALL)

    def discard(self) -> None:
        """Let go of everything, where L{start} was never called. Takes no time to speak of."""
        # grpc core lets go of ports only by starting and stopping.
        self._server.start()
        self._server.shutdown(self._queue, _STOPPED)
        while self._queue.poll().tag is not _STOPPED:
            pass
        self._isDown = True
        self._queue.shutdown()
        while self._queue.poll().completion_type != _SHUTDOWN:
            pass
        self._server.destroy()

    def _leave(self) -> Deferred[None]:
        """
        Stop with the reactor, if nobody else does.

        A queue that nobody empties any more keeps the process from ending. Whoever stops this
        server himself, with a grace, does so in the same turn.
        """
        done: Deferred[None] = Deferred()
        self._reactor.callLater(0, lambda: self._stopped(0).chainDeferred(done))
        return done

    def stop(self, graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """Accept nothing more, let calls end, and cancel those that have not after the grace."""
        if self._isStopping:
            self._hurry(graceSeconds)
        elif not settleSeconds:
            self._shutDown(graceSeconds)
        elif self._settling is None:
            # grpc core cancels what comes between its own stop and a client's hearing of it. Most
            # clients that are at work wait for an answer before they ask again.
            self.isOpen = False
            self._settling = self._reactor.callLater(
                settleSeconds, self._shutDown, graceSeconds, settleSeconds
            )
        return self._whenStopped()

    def _shutDown(self, graceSeconds: float, settleSeconds: float = 0.0) -> None:
        self._isStopping = True
        if graceSeconds:
            self._request(_WAITING_CALLS)
        self._server.shutdown(self._queue, _STOPPED)
        self._grace = self._reactor.callLater(graceSeconds, self._cancelCalls)
        if self._settling is not None:
            self._stopSettling()
            self._settling = self._reactor.callLater(settleSeconds, self._release)

    def _hurry(self, graceSeconds: float) -> None:
        """Shorten the grace, or leave it as it is."""
        if self._grace.active():
            sooner = self._reactor.seconds() + graceSeconds
            if sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)

    def hold(self, call: Any, operations: Sequence[Any], tag: Callable[[Any], object]) -> None:
        """Start operations when the server has settled; or never, if it is down."""
        if not self._isDown:
            self._held.append((call, operations, tag))

    def _release(self) -> None:
        """Start what was held."""
        held, self._held = self._held, []
        self.isOpen = not self._isDown
        if self.isOpen:
            for call, operations, tag in held:
                try:
                    call.start_server_batch(operations, tag)
                except Exception:
                    # As where calls are settled; the others go on.
                    self._log.failure("a call could not be answered")

    def _stopSettling(self) -> None:
        if self._settling is not None and self._settling.active():
            self._settling.cancel()

    def _stopped(self, graceSeconds: float) -> Deferred[None]:
        """Wait for the end that somebody has begun, or begin it."""
        hasBegun = self._isStopping or self._settling is not None
        return self._whenStopped() if hasBegun else self.stop(graceSeconds)

    def _whenStopped(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self._hasEnded:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    def connections(self) -> int:
        """Count the connections that are there."""
        return 0 if self._hasEnded else self._connections.count()

    def _cancelCalls(self) -> None:
        if not self._isDown:
            self._server.cancel_all_calls()

    def _process(self, event: Any) -> None:
        tag = event.tag
        if tag is _NEW_CALL:
            if event.success and self._accept is not None:
                if not self._isStopping:
                    self._request(1)
                self._accept(ServerCall(self, event))
        elif tag is _STOPPED:
            self._isDown = True
            self.isOpen = False
            self._queue.shutdown()
        else:
            tag(event)

    def putOff(self, call: ServerCall) -> bool:
        """Have a call asked soon to send what it has; tells if it is not, for nothing goes on."""
        if self._pump.isTaking:
            self._unsent.append(call)
            return True
        return False

    def _settle(self) -> None:
        unsent, self._unsent = self._unsent, []
        for call in unsent:
            try:
                call.sendOn()
            except Exception:
                # Such as trailers that somebody has put past setTrailers; the others go on.
                self._log.failure("{path} could not be answered", path=call.path)

    def _ended(self) -> None:
        self._server.destroy()
        self._hasEnded = True
        if self._grace.active():
            self._grace.cancel()
        self._stopSettling()
        self._held.clear()
        # The reactor may be shutting down, and has taken it already.
        with suppress(KeyError, ValueError):
            self._reactor.removeSystemEventTrigger(self._trigger)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)


def _isServed(path: str) -> bool:
    """Tell whether somebody listens at a UNIX socket: grpc core would put its own in its place."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.setblocking(False)
        try:
            asker.connect(path)
        except BlockingIOError:
            # So many wait there already.
            return True
        except (OSError, ValueError):
            # Nobody, or no path; what remains of one who has gone is replaced.
            return False
    return True


def checkLibrary() -> None:
    """
    Look whether grpcio has what this file is written on.

    @raise ImportError: If it has not, with the version.
    """
    needed = (
        "CompletionQueue",
        "Server",
        "ReceiveMessageOperation",
        "ReceiveCloseOnServerOperation",
        "SendInitialMetadataOperation",
        "SendMessageOperation",
        "SendStatusFromServerOperation",
        "WriteFlag",
        "auth_context",
        "channelz_get_servers",
        "channelz_get_server_sockets",
    )
    missing = [name for name in needed if not hasattr(cygrpc, name)]
    if missing:
        import grpc

        raise ImportError(f"grpcio {grpc.__version__} has no {', '.join(missing)}")
