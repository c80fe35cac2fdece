"""
The server's engine on C{grpc.aio}, by public names alone.

What the public interface does not have, in contrast to the native engine:

  - connections are not counted: L{AioServer.connections} counts the peers of open calls
  - a request over the limit ends its call all the same, but looks like a client that has left
  - of calls that arrive while the server begins to stop, some are cancelled: C{grpc.aio} takes them
    one by one, and cannot take those that wait
  - a response of one message takes a second batch for its status
  - a path that is not UTF-8 ends its call with C{UNKNOWN}
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from zope.interface import implementer

from storagegate.rpc.engine.aiocall import AioServerCall
from storagegate.rpc.engine.aioloop import LoopBridge
from storagegate.rpc.interfaces import IServerEngine, MessageByteCounter

_WAITING_CALLS = 3000
"""Calls that may wait for the reactor; more are refused. As many as grpc core lets wait."""

_UNLIMITED_SECONDS = 1e8
"""The grace that C{grpc.aio} gets: the reactor's own timer ends it."""


@implementer(IServerEngine)
class AioServer:
    """
    A server of C{grpc.aio}, see L{IServerEngine}.

    @ivar traffic: Counts the bytes of messages.
    @ivar bridge: Leads to the loop.
    """

    def __init__(
        self, reactor: Any, arguments: Sequence[tuple[str, Any]], traffic: MessageByteCounter
    ) -> None:
        """
        @param reactor: Where calls are accepted.
        @param arguments: The channel arguments of grpc core.
        """
        self.traffic = traffic
        self.bridge = LoopBridge(reactor)
        self._reactor = reactor
        self._accept: Callable[[Any], object] | None = None
        self._peers: dict[str, int] = {}
        self._handedOver = self._accepted = 0
        self._running: set[asyncio.Task[Any]] = set()
        # What calls do while the server settles; None while it is done at once.
        self._held: list[tuple[Callable[..., object], Any]] | None = None
        self._isStopping = self._hasEnded = False
        self._waiting: list[Deferred[None]] = []
        self._settling: Any = None
        self._grace: Any = None
        self._trigger: Any = None
        self._server: Any = self.bridge.wait(self._make(arguments))

    async def _make(self, arguments: Sequence[tuple[str, Any]]) -> Any:
        return grpc.aio.server(handlers=(_Handler(self._serve),), options=tuple(arguments))

    def bind(self, address: str, credentials: Any = None) -> int:
        """
        Open a port.

        @param address: C{host:port}, C{[::1]:port} or C{unix:path}.
        @param credentials: C{grpc.ServerCredentials}; C{None} for none.
        @return: The port.
        @raise CannotListenError: If it cannot be had.
        """

        async def add() -> int:
            if credentials is None:
                return int(self._server.add_insecure_port(address))
            return int(self._server.add_secure_port(address, credentials))

        host, _, port = address.rpartition(":")
        try:
            bound = self.bridge.wait(add())
        except RuntimeError as error:
            raise CannotListenError(host, port, error) from error
        if not bound:
            raise CannotListenError(host, port, OSError("the address is taken or is none"))
        return bound

    def start(self, accept: Callable[[Any], object]) -> None:
        """Begin to accept calls."""
        self._accept = accept
        self.bridge.wait(self._server.start())
        self._trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._leave)

    def discard(self) -> None:
        """Close everything, where L{start} was never called. Takes no time to speak of."""

        async def startAndStop() -> None:
            # grpc core lets go of ports only by starting and stopping.
            server, self._server = self._server, None
            await server.start()
            await server.stop(None)

        self.bridge.wait(startAndStop())
        self._hasEnded = True
        self.bridge.close()

    async def _serve(self, path: str, context: Any) -> None:
        """Serve one call. In the loop."""
        if self._handedOver - self._accepted >= _WAITING_CALLS:
            context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details("too many calls at a time")
            return
        task: Any = asyncio.current_task()
        self._running.add(task)
        try:
            call = AioServerCall(self, path, context)
            self._handedOver += 1
            self.bridge.deliver(self._begin, call)
            await call.run()
        finally:
            self._running.discard(task)

    def _begin(self, call: "AioServerCall") -> None:
        self._accepted += 1
        peer = call.peer()
        self._peers[peer] = self._peers.get(peer, 0) + 1
        if self._accept is not None:
            self._accept(call)

    def forget(self, call: "AioServerCall") -> None:
        """Note that a call has ended. In the reactor thread."""
        peer = call.peer()
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def operate(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function of a call in the loop, when the server has settled."""
        if self._held is None:
            self.bridge.post(function, *arguments)
        else:
            self._held.append((function, arguments))

    def connections(self) -> int:
        """Count the peers of open calls, which are no more than the connections."""
        return len(self._peers)

    def _leave(self) -> Deferred[None]:
        """Stop with the reactor, after what else stops this server in the same iteration."""
        done: Deferred[None] = Deferred()
        self._reactor.callLater(0, lambda: self._stopped().chainDeferred(done))
        return done

    def _stopped(self) -> Deferred[None]:
        hasBegun = self._isStopping or self._settling is not None
        return self._whenStopped() if hasBegun else self.stop(0)

    def stop(self, graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """Accept nothing more, let calls end, and cancel those that have not after the grace."""
        if self._isStopping:
            sooner = self._reactor.seconds() + graceSeconds
            if self._grace.active() and sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)
        elif not settleSeconds:
            self._shutDown(graceSeconds)
        elif self._settling is None:
            self._held = []
            self._settling = self._reactor.callLater(
                settleSeconds, self._shutDown, graceSeconds, settleSeconds
            )
        return self._whenStopped()

    def _whenStopped(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self._hasEnded:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    def _shutDown(self, graceSeconds: float, settleSeconds: float = 0.0) -> None:
        self._isStopping = True
        # From here on no call is accepted.
        self.bridge.wait(self._beginStop(_UNLIMITED_SECONDS if graceSeconds else None))
        self._grace = self._reactor.callLater(graceSeconds, self.bridge.post, self._spawnStop, None)
        if self._settling is not None:
            if self._settling.active():
                self._settling.cancel()
            self._settling = self._reactor.callLater(settleSeconds, self._release)

    def _release(self) -> None:
        """Do what calls did while the server settled."""
        held, self._held = self._held, None
        for function, arguments in held or ():
            self.bridge.post(function, *arguments)

    def _spawnStop(self, graceSeconds: float | None) -> None:
        """Stop the server. In the loop; the second time, without grace, ends the first."""
        if self._server is not None:
            self.bridge.spawn(self._stop(graceSeconds))

    async def _beginStop(self, graceSeconds: float | None) -> None:
        self._spawnStop(graceSeconds)
        await asyncio.sleep(0)

    async def _stop(self, graceSeconds: float | None) -> None:
        await self._server.stop(graceSeconds)
        if self._running:
            await asyncio.wait(self._running)
        if self._server is not None:
            # In this thread it takes its own with it.
            self._server = None
            self.bridge.deliver(self._ended)

    def _ended(self) -> None:
        self._hasEnded = True
        for delayed in (self._grace, self._settling):
            if delayed is not None and delayed.active():
                delayed.cancel()
        # The reactor may be shutting down, and has taken it already.
        with suppress(KeyError, ValueError):
            self._reactor.removeSystemEventTrigger(self._trigger)
        self._peers.clear()
        self.bridge.close()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves every method in one way, as bytes."""

    def __init__(self, serve: Callable[[str, Any], Coroutine[Any, Any, None]]) -> None:
        self._serve = serve

    def service(self, details: Any) -> Any:
        """Return the handler of a call, which alone knows the name of its method."""

        async def serve(requests: Any, context: Any) -> None:
            await self._serve(details.method, context)

        return grpc.stream_stream_rpc_method_handler(serve)
