"""The calls of gRPC on the ports of another server, which tells them by their content type."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from storagegate.core.heldbytes import HeldBytes
from storagegate.net.http2.core import HTTP2Core
from storagegate.net.http2.hpack import ReceivedFields
from storagegate.rpc.engine.native.call import NativeCall
from storagegate.rpc.engine.native.head import isCall
from storagegate.rpc.engine.native.resources import messageLimits
from storagegate.rpc.engine.native.service import CallPeer, CallService
from storagegate.rpc.interfaces import MessageByteCounter


class SharedCalls:
    """
    The calls of a gRPC application on the connections of a listener for HTTP.

    The listener has the limits and timeouts of connections, and drains them.

    @ivar service: The state that all calls share.
    """

    def __init__(
        self, clock: Any, options: Any, traffic: MessageByteCounter, budget: HeldBytes
    ) -> None:
        """
        @param clock: Provides C{IReactorTime}.
        @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
        @param budget: Counts the bytes of incomplete messages.
        """
        self.service = CallService(messageLimits(options), clock, traffic, budget)
        self._stopped: Callable[[], object] = lambda: None
        self._peers: WeakKeyDictionary[HTTP2Core, CallPeer] = WeakKeyDictionary()

    def open(self, connection: Any, number: int, fields: ReceivedFields) -> NativeCall | None:
        """
        Make the stream of a call.

        @param connection: The connection, with its C{transport}.
        @return: C{None} for a request that is no call.
        """
        if not isCall(fields):
            return None
        peer = self._peers.get(connection)
        if peer is None:
            peer = self._peers[connection] = CallPeer(connection.transport)
        return NativeCall(connection, number, self.service, peer)

    def start(self, accept: Callable[[Any], object], stopped: Callable[[], object]) -> None:
        """
        Start accepting calls.

        @param accept: Called with each call.
        @param stopped: Called by L{close}.
        """
        self.service.accepted = accept
        self._stopped = stopped

    def close(self) -> None:
        """Stop: the connections of the listener have ended."""
        self.service.deadlines.close()
        self._stopped()
