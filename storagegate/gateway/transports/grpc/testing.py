"""gRPC in memory, for tests."""

from functools import partial
from typing import Any

from storagegate.gateway.messages.frames import CLIENT_END, CLIENT_ITEM, END, ERROR, ITEM, RESPONSE
from storagegate.gateway.testing import CallConnection, GatewayClient, PendingCall
from storagegate.gateway.transports.grpc.listener import GRPCTransport
from storagegate.rpc.testing import RPCTestCall, RPCTestClient


class GRPCTestConnection(CallConnection):
    """
    A gRPC client of a test, which uses the names that services and methods have on the other
    transports.

    Errors are C{GrpcError}, as in the client.

    @ivar rpc: The underlying client, for metadata and services of protos.
    """

    def __init__(self, client: GatewayClient, transport: GRPCTransport) -> None:
        super().__init__(client)
        self.rpc = RPCTestClient(transport.server, clock=client.clock, address=client.address)
        self._paths = transport.paths
        self._started: list[tuple[PendingCall, RPCTestCall]] = []
        client.watch(self._deliver)

    def start(
        self, service: str, method: str, data: Any = None, *, token: str | None = None, **more: Any
    ) -> PendingCall:
        """
        Begin a call.

        @param data: The request; for a stream of requests a list of them, or C{None}.
        @param token: A token, in C{authorization}.
        @param more: C{metadata} and C{deadlineMs}.
        @raise KeyError: If the server has no such method.
        """
        if token is not None:
            more["metadata"] = {**(more.get("metadata") or {}), "authorization": f"Bearer {token}"}
        started = self.rpc.start(self._paths[service, method], data, **more)
        call = PendingCall(f"{service}.{method}", partial(self._send, started))
        self._started.append((call, started))
        self._client.flush()
        return call

    def _send(self, started: RPCTestCall, type: int, item: Any) -> None:
        if type == CLIENT_ITEM:
            started.send(item)
        elif type == CLIENT_END:
            started.end()
        else:
            started.cancel()
        self._client.flush()

    def _deliver(self) -> bool:
        moved = False
        for call, started in self._started[:]:
            if started.isStream:
                for item in started.responses[len(call.items) :]:
                    moved = True
                    call.receive(ITEM, item)
            if started.isDone:
                moved = True
                self._started.remove((call, started))
                if started.error is not None:
                    call.receive(ERROR, started.error)
                elif started.isStream:
                    call.receive(END, None)
                else:
                    call.receive(RESPONSE, started.responses[0])
        return moved


def connect(client: GatewayClient, transport: GRPCTransport, carrier: Any) -> GRPCTestConnection:
    """
    Connect a client.

    @param carrier: Not used: the transport has a listener of its own.
    """
    return GRPCTestConnection(client, transport)
