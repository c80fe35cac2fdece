"""
Calls over gRPC, as a transport of the gateway's client.

The methods of a service are known from the gateway, or fetched by reflection before the first call.
"""

import os
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import CancelledError, Deferred

from storagegate.core.errors import GRPC_STATUSES, asServiceError, codedError
from storagegate.core.streams import BoundedStream, SharedFuture
from storagegate.gateway.client.formats import Reply
from storagegate.gateway.client.transports import (
    BUFFERED_BYTES,
    CallHead,
    ClientTarget,
    connectionLost,
    tooLarge,
    unreachable,
)
from storagegate.gateway.messages.frames import END, ERROR, ITEM, RESPONSE
from storagegate.rpc.call import CallMetadata, wireMetadata
from storagegate.rpc.client import readAddress, readCredentials, readOptions
from storagegate.rpc.clientcall import statusError
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.engine import makeClientEngine
from storagegate.rpc.interfaces import CallOptions, ClientClosedError, IClientCall, IClientEngine
from storagegate.rpc.protos import RPCMethod, RPCService
from storagegate.rpc.reflectionclient import fetchServices

_REFLECTION_SECONDS = 10.0

Methods = Mapping[tuple[str, str], RPCMethod]
"""The methods by service and name."""


def makeEngine(target: ClientTarget) -> IClientEngine:
    """
    Make a channel to a listener.

    @raise ValueError: If the options of TLS do not fit.
    """
    tls = None
    if target.tls is not None:
        given = target.tls
        if not given.verify:
            raise ValueError("gRPC verifies every certificate: tls.verify cannot be false")
        files = {"ca": given.caFile, "cert": given.certFile, "key": given.keyFile}
        tls = readCredentials({**files, "serverName": given.serverName})
    address = target.authority
    if target.unixAddress is not None and target.unixAddress.name is not None:
        address = f"unix:{os.fsdecode(target.unixAddress.name)}"
    options = readOptions(
        {"maxReceiveMessageLength": target.maxMessageBytes, "engine": target.grpcEngine}
    )
    return makeClientEngine(readAddress(address), tls, options, target.reactor)


class GRPCGatewayCall:
    """
    A call over gRPC.

    @ivar replies: The replies; the engine is not read while they are full.
    """

    def __init__(self, call: IClientCall, method: RPCMethod | None, maxBytes: int) -> None:
        """@param method: The method; C{None} if only the listener can refuse its name."""
        self._call = call
        self._method = method
        self._limit = maxBytes
        self._isOver = False
        self.replies: BoundedStream[Reply] = BoundedStream(
            BUFFERED_BYTES, sizeOf=lambda reply: reply.size
        )
        self._reading = Deferred.fromCoroutine(self._read())

    async def send(self, data: Any) -> None:
        """Send a message."""
        assert self._method is not None
        if not self._isOver and not self._call.send(self._method.request.encode(data)):
            await self._call.drained()

    def sendEnd(self) -> None:
        """Send the end of the messages."""
        if not self._isOver:
            self._call.sendEnd()

    def close(self) -> None:
        """Cancel the call if it has not ended."""
        if not self._isOver:
            self._isOver = True
            self._reading.cancel()
            self._call.cancel()
        self.replies.end()

    async def _read(self) -> None:
        """Read the responses and the status."""
        streams = self._method is not None and self._method.streaming in ("server", "bidirectional")
        # The status follows the response of a method without a stream.
        reply = Reply(END, None, None)
        try:
            while True:
                received: Deferred[bytes | None] = Deferred()
                self._call.read(received.callback)
                message = await received
                if message is None:
                    break
                await self.replies.drained(BUFFERED_BYTES)
                data = None if self._method is None else self._method.response.decode(message)
                if streams:
                    self.replies.put(Reply(ITEM, None, data, len(message)))
                else:
                    reply = Reply(RESPONSE, None, data, len(message))
            status, text, trailers = await self._call.ended()
        except CancelledError:
            return
        self._isOver = True
        if status:
            error = statusError(status, text, CallMetadata(trailers or ()))
            isLarge = status == GRPC_STATUSES["RESOURCE_EXHAUSTED"] and "larger than max" in text
            failed = tooLarge(self._limit) if isLarge else asServiceError(error)
            reply = Reply(ERROR, None, failed)
        self.replies.put(reply, last=True)


class GRPCClientTransport:
    """Calls over gRPC, on one channel."""

    def __init__(self, target: ClientTarget) -> None:
        self._limit = target.maxMessageBytes
        self._engine = makeEngine(target)
        self._methods: Methods | None = target.methods
        self._fetching: SharedFuture[Methods] | None = None

    async def begin(self, head: CallHead) -> GRPCGatewayCall:
        """Begin a call."""
        methods = self._methods
        if methods is None:
            methods = await self._fetch()
        method = methods.get((head.service, head.method))
        # The listener refuses an unknown method.
        path = f"/{quote(head.service)}/{quote(head.method)}" if method is None else method.path
        try:
            metadata = wireMetadata(head.fields())
            request: bytes | None = b""
            if method is not None:
                data = {} if head.data is None else head.data
                request = None if head.streamsRequests else method.request.encode(data)
        except (ConversionError, ValueError) as error:
            raise codedError("INVALID_ARGUMENT", str(error)) from error
        deadline = None if head.deadlineMs is None else time.time() + head.deadlineMs / 1000
        try:
            call = self._engine.call(path, CallOptions(metadata, deadline), request)
        except ClientClosedError as error:
            raise connectionLost(isUnsent=True) from error
        return GRPCGatewayCall(call, method, self._limit)

    def _fetch(self) -> Deferred[Methods]:
        fetching = self._fetching
        if fetching is None:
            fetching = self._fetching = SharedFuture()
            Deferred.fromCoroutine(self._reflect(fetching))
        return fetching.wait()

    async def _reflect(self, future: SharedFuture[Methods]) -> None:
        """Fetch the methods by reflection, for all calls that wait for them."""
        try:
            services = await fetchServices(self._engine, time.time() + _REFLECTION_SECONDS)
        except Exception as error:
            # The next call tries again.
            self._fetching = None
            future.fail(unreachable(error))
        else:
            self._methods = methodsOf(services)
            future.set(self._methods)

    def close(self) -> Deferred[None]:
        """Close the channel; calls in flight fail."""
        return self._engine.close()


def methodsOf(services: Mapping[str, RPCService]) -> Methods:
    """
    Return methods by the names that a gateway gives them on its other transports.

    @param services: The services by full name.
    """
    found: dict[tuple[str, str], RPCMethod] = {}
    for name, service in services.items():
        for key, method in service.methods.items():
            for each in (name, name.rpartition(".")[2]):
                for alias in (key, key[:1].lower() + key[1:]):
                    found.setdefault((each, alias), method)
    return found


makeTransport = GRPCClientTransport
