"""HTTP in memory, for tests; WebSocket also connects through it."""

from collections.abc import Sequence
from typing import Any

from storagegate.gateway.testing import GatewayClient
from storagegate.gateway.transports.http.listener import HTTPTransport
from storagegate.http.testing import Client


def connect(
    client: GatewayClient, transport: HTTPTransport, carrier: Any, guests: Sequence[Any] = ()
) -> Client:
    """
    Return a client of the application that serves HTTP.

    @param carrier: Not used: the transport has a listener of its own.
    @param guests: The transports that share the listener.
    """
    transport.carry(list(guests), True)
    made = Client(transport.makeApplication(), clock=client.clock, address=client.address)
    client.watch(made.deliver)
    return made
