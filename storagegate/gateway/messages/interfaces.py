"""
The interface between a session and its transport, and the shapes of results and errors.

A session writes through L{Peer}; all sessions of a listener share L{ListenerState}. The shapes are
plain dictionaries for any codec. gRPC represents an error as a status, see
L{asGrpcError<storagegate.core.errors.asGrpcError>}.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from attrs import Factory, define, field
from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from storagegate.core.context import ClientInfo
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import Invoker
from storagegate.core.shares import AddressShares, shareOf
from storagegate.net.scheduling import InputScheduler

MessageId = str | int | None


def detailedError(shape: dict[str, Any], error: ServiceError) -> dict[str, Any]:
    """
    Add the details of an error, if it has any.

    @param shape: The error as a transport sends it; changed in place.
    @return: C{shape}.
    """
    if error.details is not None:
        shape["details"] = error.details
    return shape


CALLS_OF_A_LISTENER = 1024
"""The limit of calls in flight of all peers of a listener."""


class Peer(Protocol):
    """
    The interface through which a session writes; a disconnected peer discards all output.

    A result or item that cannot be encoded raises C{ValueError} or a C{ServiceError}, which ends
    its call. Nothing else raises.

    @ivar protocol: The name of the transport.
    """

    protocol: str
    client: ClientInfo

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """
        Send a result.

        @param id: The id of the request; C{None} for calls answered in order.
        @param method: The method's name, for the user's C{formatResponse}.
        @param result: The method's result, before encoding.
        @return: An awaitable that the call waits for, if a user's hook needs time.
        """

    def sendItem(self, id: MessageId, method: str, item: Any) -> None:
        """
        Send an item of a stream.

        @param id: The id of the request; C{None} for calls answered in order.
        @param method: The method's name.
        @param item: Any value that the codec of the transport can encode.
        """

    def sendEnd(self, id: MessageId, method: str) -> None:
        """
        Send the end of a stream.

        @param id: The id of the request; C{None} for calls answered in order.
        @param method: The method's name.
        """

    def sendRefusal(self, id: MessageId, error: ServiceError) -> None:
        """
        Refuse a request with the id of a call in flight; the call is not affected.

        @param id: The id of the request and the call.
        @param error: The error, before C{transformError}.
        """

    def sendError(self, id: MessageId, error: ServiceError) -> None:
        """
        Send an error.

        @param id: The id of the request; C{None} for calls answered in order.
        @param error: The error, before C{transformError}.
        """

    def drained(self) -> Deferred[None] | None:
        """Wait until the peer has read enough of the output; C{None} if it already has."""

    def setReading(self, wanted: bool) -> None:
        """
        Resume or pause reading from the peer.

        @param wanted: C{False} while the session accepts neither calls nor items.
        """


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class StreamHooks(Struct, frozen=True):
    """
    A user's hooks that handle streams instead of the session.

    @ivar send: Sends any message; the Deferred fires when the next message may follow.
    @ivar server: C{(results, send, id)} sends the messages of a stream of results.
    @ivar client: C{(requests, call, id)} returns the result; C{call(iterable)} calls the method.
    """

    send: Callable[[Any], Deferred[None]]
    server: Callable[[AsyncIterable[Any], Callable[[Any], Any], MessageId], Any] | None = None
    client: Callable[[AsyncIterable[Any], Callable[[Any], Any], MessageId], Any] | None = None


@define(eq=False)
class ListenerState:
    """
    The state that all sessions of a listener share.

    @ivar maxCalls: The maximum number of calls in flight of all peers.
    @ivar maxCallsPerAddress: How many of these one address may make; C{None} for three quarters.
    @ivar callsPerAddress: The effective limit of one address.
    @ivar calls: How many calls are in flight.
    @ivar shares: The calls and connections of each address.
    @ivar isDraining: Whether further calls are refused.
    @ivar scheduler: Divides time among the connections.
    """

    invoker: Invoker
    clock: IReactorTime
    maxCalls: int = CALLS_OF_A_LISTENER
    maxCallsPerAddress: int | None = None
    calls: int = 0
    isDraining: bool = False
    shares: AddressShares = Factory(AddressShares)
    callsPerAddress: int = Factory(
        lambda self: shareOf(self.maxCalls, self.maxCallsPerAddress), takes_self=True
    )
    scheduler: InputScheduler = field(
        default=Factory(lambda self: InputScheduler(self.clock), takes_self=True)
    )
