"""
The engines that carry gRPC calls, the choice between them, and the shutdown that both share.

The native one drives grpc core by names that grpcio keeps private. Where an installed grpcio lacks
one of them, or one behaves otherwise, C{grpc.aio} is used in its place: slower, but public.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.rpc.interfaces import IClientEngine, MessageByteCounter

ENGINE_VARIABLE = "STORAGEGATE_GRPC_ENGINE"
"""The environment variable that names the engine, C{native} or C{aio}; else it is chosen."""

_NEEDED = (
    "AioServer",
    "Channel",
    "CompletionQueue",
    "InitialMetadataFlags",
    "ReceiveInitialMetadataOperation",
    "ReceiveStatusOnClientOperation",
    "Server",
    "StatusCode",
    "auth_context",
    "channelz_get_server_sockets",
    "channelz_get_servers",
)
"""Private names of grpcio beside those that L{privateNamesProblem} calls."""

_log = Logger()


def privateNamesProblem() -> str | None:
    """
    Check the private names of grpcio that the native engine uses.

    @return: The one that is missing or differs; C{None} if the native engine can be used.
    """
    try:
        from grpc._cython import cygrpc

        missing = [name for name in _NEEDED if not hasattr(cygrpc, name)]
        if missing:
            return f"no {', '.join(missing)}"
        cygrpc.ReceiveMessageOperation(0)
        cygrpc.ReceiveCloseOnServerOperation(0)
        cygrpc.SendCloseFromClientOperation(0)
        cygrpc.SendInitialMetadataOperation((), 0)
        cygrpc.SendMessageOperation(b"", cygrpc.WriteFlag.buffer_hint)
        cygrpc.SendStatusFromServerOperation((), 0, "", 0)
        queue = cygrpc.CompletionQueue()
        # An event of each kind that the queue makes by itself.
        if queue.poll(0).completion_type != cygrpc.CompletionType.queue_timeout:
            return "another CompletionQueue"
        queue.shutdown()
        if queue.poll(0).completion_type != cygrpc.CompletionType.queue_shutdown:
            return "another CompletionQueue"
    except Exception as error:
        return f"other private names: {error}"
    return None


@cache
def engineName() -> str:
    """
    Choose the engine of this process, C{native} or C{aio}; the fallback to C{aio} is logged.

    @raise ValueError: If L{ENGINE_VARIABLE} names neither.
    """
    name = os.environ.get(ENGINE_VARIABLE, "")
    if name not in ("", "native", "aio"):
        raise ValueError(f"{ENGINE_VARIABLE} is native or aio, not {name:.40}")
    if name:
        return name
    problem = privateNamesProblem()
    if problem is None:
        return "native"
    import grpc

    version = getattr(grpc, "__version__", "of an unknown version")
    _log.warn(
        "grpcio {version} has {problem}: gRPC runs on its public grpc.aio, which is slower",
        version=version,
        problem=problem,
    )
    return "aio"


def makeServerEngine(
    reactor: Any, arguments: Sequence[tuple[str, Any]], traffic: MessageByteCounter
) -> Any:
    """
    Make the engine of a server.

    @param arguments: The channel arguments of grpc core.
    @param traffic: Counts the bytes of messages.
    @return: An L{IServerEngine<storagegate.rpc.interfaces.IServerEngine>} with C{bind} and
        C{discard}.
    """
    if engineName() == "native":
        from storagegate.rpc.engine.server import GrpcioServer

        return GrpcioServer(reactor, arguments, traffic)
    from storagegate.rpc.engine.aioserver import AioServer

    return AioServer(reactor, arguments, traffic)


def makeClientEngine(
    target: str, credentials: Any, arguments: Sequence[tuple[str, Any]], reactor: Any
) -> IClientEngine:
    """
    Make the engine of a client; it connects when it is used.

    @param target: The server, by a name that gRPC understands.
    @param credentials: C{grpc.ChannelCredentials}, C{None} for plain text.
    @param arguments: The channel's arguments.
    """
    if engineName() == "native":
        from storagegate.rpc.engine.client import ChannelEngine

        return ChannelEngine(target, credentials, arguments, reactor)
    from storagegate.rpc.engine.aio import AioChannel

    return AioChannel(target, credentials, arguments, reactor)


class GracefulShutdown:
    """
    The shutdown of a server: settle, accept no more calls, grace, cancel.

    grpc core cancels the calls that arrive between its own stop and the moment when their client
    learns of it. Most busy clients wait for a response before they call again, so that responses
    are held for a while before and after the stop: the server settles.

    @ivar isOpen: Whether operations of calls start at once; else they go to L{hold}.
    @ivar isStopping: Whether no more calls are accepted.
    @ivar hasEnded: Whether no call, port or thread is left.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        shutDown: Callable[[float], object],
        cancelCalls: Callable[[], object],
    ) -> None:
        """
        @param reactor: Provides C{IReactorTime} and C{IReactorCore}.
        @param shutDown: Called with the grace in seconds: accepts no more calls from then on.
        @param cancelCalls: Called at the end of the grace, if the server has not ended before.
        """
        self.isOpen = True
        self.isStopping = self.hasEnded = False
        self._reactor = reactor
        self._shutDown = shutDown
        self._cancelCalls = cancelCalls
        self._isClosed = False
        self._held: list[tuple[Callable[..., object], Any]] = []
        self._settling: Any = None
        self._grace: Any = None
        self._trigger: Any = None
        self._waiting: list[Deferred[None]] = []

    def stopWithReactor(self) -> None:
        """Stop the server when the reactor stops: its thread would keep the process running."""
        self._trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._leave)

    def _leave(self) -> Deferred[None]:
        """Stop, after anything that stops the server with a grace in the same iteration."""
        done: Deferred[None] = Deferred()

        def stop() -> None:
            hasBegun = self.isStopping or self._settling is not None
            (self._whenEnded() if hasBegun else self.stop(0)).chainDeferred(done)

        self._reactor.callLater(0, stop)
        return done

    def stop(self, graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """
        Stop, or shorten the grace of a stop in progress; see
        L{IServerEngine.stop<storagegate.rpc.interfaces.IServerEngine>}.
        """
        if self.isStopping:
            sooner = self._reactor.seconds() + graceSeconds
            if self._grace.active() and sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)
        elif not settleSeconds:
            self._begin(graceSeconds, 0.0)
        elif self._settling is None:
            self.isOpen = False
            self._settling = self._reactor.callLater(
                settleSeconds, self._begin, graceSeconds, settleSeconds
            )
        return self._whenEnded()

    def _begin(self, graceSeconds: float, settleSeconds: float) -> None:
        self.isStopping = True
        self._shutDown(graceSeconds)
        self._grace = self._reactor.callLater(graceSeconds, self._cancelCalls)
        if self._settling is not None:
            self._stopTimer(self._settling)
            self._settling = self._reactor.callLater(settleSeconds, self._release)

    def _whenEnded(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self.hasEnded:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    def _stopTimer(self, timer: Any) -> None:
        if timer is not None and timer.active():
            timer.cancel()

    def hold(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function when the server has settled; never, if the engine takes none any more."""
        if not self._isClosed:
            self._held.append((function, arguments))

    def _release(self) -> None:
        held, self._held = self._held, []
        self.isOpen = not self._isClosed
        for function, arguments in held:
            try:
                function(*arguments)
            except Exception:
                # The other calls are answered all the same.
                self._log.failure("a call could not be answered")

    def closeOperations(self) -> None:
        """Drop what is held, and what follows: the engine takes no operation any more."""
        self._isClosed = True
        self.isOpen = False
        self._held.clear()

    def ended(self) -> None:
        """Fire the Deferreds of L{stop}: no call, port or thread is left."""
        self.hasEnded = True
        self._stopTimer(self._grace)
        self._stopTimer(self._settling)
        self.closeOperations()
        # A reactor that is shutting down has removed it already.
        with suppress(KeyError, ValueError):
            self._reactor.removeSystemEventTrigger(self._trigger)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
